"""Write docs/tour/README.md: one matmul through every stage, with the IR that is really made.

    python scripts/make_tour.py            # rewrites the page
    python scripts/make_tour.py --check    # exits 1 where the page differs

The page is for an AVX2 processor with one core, whatever machine it is made on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tilework import Tensor
from tilework.codegen.analysis import analyse
from tilework.codegen.linearize.order import linearise
from tilework.codegen.passes.decompose import decompose, decompose_node
from tilework.codegen.passes.expand import expand
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.plan import Plan
from tilework.ir.node import Node
from tilework.ir.text import format_node
from tilework.render.llvm_ir import LlvmRenderer
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import build_schedule
from tilework.target.known.cpu import x86_level_spec

PAGE = Path(__file__).parents[1] / "docs" / "tour" / "README.md"

INTRODUCTION = """\
# One matmul through every stage

This page follows `(a @ b).relu()` from the line of Python to machine code, for a processor with
AVX2. Everything in a box below is printed by the compiler itself; `scripts/make_tour.py` makes the
page and a test compares it. `python -m tilework explain script.py` prints the graph
after each pass, up to LINEAR, for a program of yours.

```python
from tilework import Tensor

a, b = Tensor.randn(4, 8), Tensor.randn(8, 16)
print((a @ b).relu().numpy())
```
"""


def _section(title: str, text: str, body: str, language: str = "") -> str:
    return f"\n## {title}\n\n{text}\n\n```{language}\n{body.rstrip()}\n```\n"


def _plan_text(plan: Plan) -> str:
    lines = [
        f"range {split.number}: outer "
        + " x ".join(f"{part.unit.value} {part.size or 'rest'}" for part in split.outer)
        + "; tile "
        + (" x ".join(f"{part.unit.value} {part.size}" for part in split.tile) or "1")
        for split in plan.splits
    ]
    nest = ", ".join(f"range {number} part {part}" for number, part in plan.nest)
    lines.append(f"nest: {nest}; the first {plan.tasks} are tasks")
    staged = [
        f"factor {row.operand} in {row.memory.value} memory inside {row.level} loops"
        for row in plan.staged
    ]
    lines.append(f"staged: {', '.join(staged) or 'nothing'}")
    return "\n".join(lines)


def _kernel_sections(kernel_node: Node) -> list[str]:
    target = x86_level_spec("x86-64-v3")
    kernel = analyse(normalise_ranges(kernel_node))
    plan = choose_plan(kernel, target)
    tiled = apply_plan(kernel, plan)
    lowered, _ = expand(tiled)
    decomposed = decompose(lowered, target)
    linear = linearise(decomposed, lambda node: decompose_node(node, target))
    text = LlvmRenderer().render(lower_kernel(kernel_node, target))
    return [
        _section(
            "4. Plan (`codegen/plan`)",
            "The cost model maps ranges to units: rows of the register tile are UNROLL copies, a\n"
            "vector of results is a LANE range, what is left are loops and tasks.",
            _plan_text(plan),
        ),
        _section(
            "5. TILED (`codegen/plan/apply.py`)",
            "Ranges have become expressions over the ranges of their parts, numbered in nest "
            "order.",
            format_node(tiled, annotate=True),
        ),
        _section(
            "6. LOWERED (`codegen/passes`)",
            "UNROLL ranges are copies now and LANE ranges vectors; what the target lacks has been\n"
            "decomposed. Each row of results is one REDUCE of vectors.",
            format_node(decomposed, annotate=True),
        ),
        _section(
            "7. LINEAR (`codegen/linearize`)",
            "Statements in order. Each value stands in the innermost loop that it needs; "
            "reductions\n"
            "are accumulators around the loop.",
            format_node(linear),
        ),
        _section(
            "8. LLVM IR (`render/llvm_ir.py`)",
            "The toolchain turns this into object code in memory, and `runtime/loader.py` "
            "places it\n"
            "in pages that are executable and not writable.",
            text,
            "llvm",
        ),
    ]


def make_page() -> str:
    """The text of the page."""
    a, b = Tensor.zeros(4, 8).contiguous(), Tensor.zeros(8, 16).contiguous()
    Tensor.realize(a, b)
    call = transform_to_call([(a @ b).relu().node])
    schedule = build_schedule(call.function)
    kernel = schedule.linear.src[0].src[0]
    parts = [
        INTRODUCTION,
        _section(
            "1. TENSOR (`tensor/`, `schedule/call.py`)",
            "The methods of `Tensor` build a graph of hash-consed nodes. `transform_to_call` "
            "replaces\n"
            "the buffers by PARAMs, so that structure alone keys the caches.",
            format_node(call.function, annotate=True),
        ),
        _section(
            "2. SCHEDULE (`schedule/`)",
            "One kernel is enough: the multiplication, the sum and the relu fuse. A LINEAR "
            "calls it\n"
            "with its slots.",
            "\n".join(line[:100] for line in format_node(schedule.linear).splitlines()[-8:]),
        ),
        _section(
            "3. KERNEL (`schedule/passes/rangeify.py`)",
            "Movement ops have become index arithmetic over RANGEs; the sum binds a range of "
            "its own.",
            format_node(kernel, annotate=True),
        ),
        *_kernel_sections(kernel),
    ]
    return "".join(parts)


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = make_page()
    if parser.parse_args().check:
        return int(PAGE.read_text(encoding="utf-8") != page)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
