"""Kernels that are not compiled from a graph, as LLVM IR: copies, fills, and the self test.

They have the signature of every kernel of the CPU: `(buffers, variables, begin, end, scratch)`,
where `begin` and `end` count tasks.
"""

from __future__ import annotations

from typing import Final

_BLOCKS: Final = """
; Kernel: buffers[0] <- buffers[1], variables[1] bytes; a task is a block.
define void @tilework_copy(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch)
    nounwind {
  %target = load ptr, ptr %buffers
  %source.at = getelementptr ptr, ptr %buffers, i64 1
  %source = load ptr, ptr %source.at
  %size.at = getelementptr i64, ptr %variables, i64 1
  %size = load i64, ptr %size.at
  %first = mul i64 %begin, $block
  %full = mul i64 %end, $block
  %over = icmp ugt i64 %full, %size
  %last = select i1 %over, i64 %size, i64 %full
  %count = sub i64 %last, %first
  %to = getelementptr i8, ptr %target, i64 %first
  %from = getelementptr i8, ptr %source, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %count, i1 false)
  ret void
}

; Kernel: each of the variables[1] bytes of buffers[0] <- the low byte of variables[2].
define void @tilework_fill(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch)
    nounwind {
  %target = load ptr, ptr %buffers
  %size.at = getelementptr i64, ptr %variables, i64 1
  %size = load i64, ptr %size.at
  %value.at = getelementptr i64, ptr %variables, i64 2
  %value = load i64, ptr %value.at
  %byte = trunc i64 %value to i8
  %first = mul i64 %begin, $block
  %full = mul i64 %end, $block
  %over = icmp ugt i64 %full, %size
  %last = select i1 %over, i64 %size, i64 %full
  %count = sub i64 %last, %first
  %to = getelementptr i8, ptr %target, i64 %first
  call void @llvm.memset.p0.i64(ptr %to, i8 %byte, i64 %count, i1 false)
  ret void
}
"""

#: By row of `runtime.self_test.ROWS`: the type of its operands, and what is done with one or both.
PROBES: Final = (
    ("float", "{x}"),
    ("float", "fadd float {x}, {y}"),
    ("float", "fadd float {x}, {y}"),
    ("float", "fmul float {x}, {y}"),
    ("float", "fmul float {x}, {y}"),
    ("i64", "mul i64 {x}, {y}"),
    ("i64", "shl i64 {x}, {y}"),
    ("i64", "ashr i64 {x}, {y}"),
    ("double", "fptosi double {x} to i64"),
)

_PROBE: Final = """
; Kernel: one operation for each row of `runtime.self_test`; buffers[0] <- results, buffers[1] has
; two words of operands for each.
define void @tilework_probe(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch)
    nounwind {
  %out = load ptr, ptr %buffers
  %in.at = getelementptr ptr, ptr %buffers, i64 1
  %in = load ptr, ptr %in.at
"""


def kernels_text() -> str:
    """The kernels, with `$block` for the bytes of one task of a copy."""
    rows = [_probe(number, *row) for number, row in enumerate(PROBES)]
    return "".join([_BLOCKS, _PROBE, *rows, "  ret void\n}\n"])


def _probe(number: int, kind: str, operation: str) -> str:
    """One operation on what is read from memory, so that no compiler can do it beforehand."""
    lines = []
    for place, name in enumerate("xy"):
        if f"{{{name}}}" in operation:
            at = f"%{name}{number}.at"
            lines.append(f"{at} = getelementptr i64, ptr %in, i64 {2 * number + place}")
            lines.append(f"%{name}{number} = load {kind}, ptr {at}")
    found = operation.format(x=f"%x{number}", y=f"%y{number}")
    if kind == "float":
        if operation != "{x}":
            lines.append(f"%z{number} = {found}")
            found = f"%z{number}"
        lines.append(f"%s{number} = bitcast float {found} to i32")
        found = f"zext i32 %s{number} to i64"
    lines.append(f"%r{number} = {found}")
    lines.append(f"%o{number} = getelementptr i64, ptr %out, i64 {number}")
    lines.append(f"store i64 %r{number}, ptr %o{number}")
    return "".join(f"  {line}\n" for line in lines)
