"""Native code of the CPU runtime, kept as LLVM IR text.

`pool_source.pool_source(isa)` is the text: threads that share a launch (`pool_source`), records run
one after the other (`runner_source`), and the kernels that no graph is compiled to
(`kernels_source`).  `layout` says where things lie that Python writes too.  A toolchain turns the
text into an object once per instruction set; the object is cached, and stored in exports, so that a
process without a compiler runs too.  `tilework.runtime.pool` loads the object and owns the threads.
"""
