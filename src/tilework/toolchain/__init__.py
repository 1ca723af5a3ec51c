"""Turn source text into object code: LLVM in process, clang as a subprocess.

    from tilework.toolchain.llvm import LlvmToolchain
    object_code = LlvmToolchain(spec).compile(ir_text)   # bytes: an ELF object for `spec`

`tilework.runtime.loader` makes the object executable.
"""
