"""What the compiler may know of a machine, as plain data; no driver code."""
