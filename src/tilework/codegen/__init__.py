"""One kernel to ordered statements and machine code."""
