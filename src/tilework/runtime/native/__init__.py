"""Native code of the CPU runtime, kept as LLVM IR text.

`pool_source.pool_source(isa)` is the text.  A toolchain turns it into an object once per
instruction set; the object is cached, and stored in exports, so that a process without a compiler
runs too.  `tilework.runtime.pool` loads the object and owns the threads.
"""
