"""What a process loads that is started for one answer: modules are counted, since time is noisy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUM = """
import sys
from tilework import Tensor
(Tensor([1.0, 2]) + Tensor([3.0, 4])).tolist()
print(*[name for name in sys.modules])
"""
#: What needs a kernel of its kind.
ONLY_SOME = (
    "tilework.codegen.sort.lower",
    "tilework.codegen.cascade.lower",
    "tilework.codegen.decompose.transcendental",
    "tilework.codegen.plan.dot_products",
    "tilework.codegen.audit_statements",
    "tilework.codegen.passes.runtime_checks",
    "tilework.engine.workers",
    "numpy",
    "fractions",
    "dataclasses",
    "inspect",
)


def loaded(folder: Path) -> set[str]:
    """The modules of a process that adds two numbers, with its caches in `folder`."""
    environment = {**os.environ, "TILEWORK_CACHE_DIR": str(folder), "TILEWORK_DEV": "CPU"}
    done = subprocess.run(
        [sys.executable, "-c", SUM], env=environment, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """What a first process and the next one load."""
    folder = tmp_path_factory.mktemp("caches")
    return loaded(folder), loaded(folder)


def own(names: set[str]) -> int:
    return sum(name.split(".")[0] == "tilework" for name in names)


def test_with_cold_caches_a_sum_loads_what_its_kernel_needs(
    starts: tuple[set[str], set[str]],
) -> None:
    cold, _ = starts
    assert {"tilework.codegen.pipeline", "llvmlite.binding"} <= cold
    assert [name for name in ONLY_SOME if name in cold] == []
    assert own(cold) <= 365


def test_with_warm_caches_a_sum_loads_no_compiler(starts: tuple[set[str], set[str]]) -> None:
    _, warm = starts
    prefixes = ("tilework.codegen", "tilework.render", "tilework.schedule.passes", "llvmlite")
    assert [name for name in warm if name.startswith(prefixes)] == []
    assert own(warm) <= 235
