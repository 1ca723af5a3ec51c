"""Machines: open devices, their memory, their programs.

Executable code from an object in memory:

    from tilework.runtime.loader import load_object
    code = load_object(object_bytes, ["kernel"])     # pages are never writable and executable
    address = code.address_of("kernel")
    code.close()

The calling convention of kernels and the launch table are in `tilework.runtime.launch`.
"""
