"""The import hook: what is served, and what is refused with which words."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilework
from tilework import Tensor, errors
from tilework.compat.tinygrad import hook, install, is_installed, jit, optim, root, uninstall


@pytest.fixture
def served() -> Iterator[None]:
    """The hook in place of a tinygrad that other tests may have imported."""
    kept = {name: item for name, item in sys.modules.items() if name.split(".")[0] == "tinygrad"}
    for name in kept:
        del sys.modules[name]
    install()
    yield
    uninstall()
    sys.modules.update(kept)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("name", hook.SERVED)
def test_each_module_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    assert "served by tilework" in str(module.__doc__)


@pytest.mark.usefixtures("served")
def test_names_come_from_tilework() -> None:
    program: dict[str, Any] = {}
    exec(  # a program as its user writes it
        "from tinygrad import Tensor, nn, dtypes\nfrom tinygrad.nn import Linear\n"
        "import tinygrad.nn.state as state\nimport tinygrad\nsame = tinygrad.nn.Linear is Linear",
        program,
    )
    assert program["Tensor"] is Tensor
    assert program["Linear"] is tilework.nn.Linear
    assert program["same"]


def test_every_optimizer_and_schedule_is_served() -> None:
    assert sorted(optim.__all__) == sorted(tilework.nn.optim.__all__)


@pytest.mark.usefixtures("served")
def test_a_module_of_the_insides_is_refused_with_what_is_served() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"tinygrad\.codegen is not served.*tinygrad\.nn"):
        importlib.import_module("tinygrad.codegen")


@pytest.mark.usefixtures("served")
def test_a_name_of_the_insides_is_refused_by_name() -> None:
    module = importlib.import_module("tinygrad.uop.ops")
    with pytest.raises(ImportError, match=r"tinygrad\.uop\.ops\.PatternMatcher is not served"):
        module.PatternMatcher  # noqa: B018  # the access is what is tested


def test_the_hook_refuses_to_hide_a_tinygrad_that_is_there() -> None:
    importlib.import_module("tinygrad")
    with pytest.raises(errors.UserError, match="imported already"):
        install()
    assert not is_installed()


def test_importing_the_package_installs_nothing() -> None:
    code = "import sys, tilework.compat.tinygrad as c; print(c.is_installed(), len(sys.meta_path))"
    plain = "import sys; print(False, len(sys.meta_path))"
    texts = [
        subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=True)
        for each in (code, plain)
    ]
    assert texts[0].stdout == texts[1].stdout


def test_an_error_of_a_program_shows_its_line(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text("from tinygrad import Tensor\n\nTensor.ones(2, 3) @ Tensor.ones(2, 3)\n")
    done = subprocess.run(
        [sys.executable, "-m", "tilework.compat.tinygrad", str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f'File "{script}", line 3' in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].strip().startswith(("got", "expected", "try"))


# --- TinyJit ---------------------------------------------------------------------------------


def test_the_first_call_runs_as_it_is_and_later_ones_replay() -> None:
    @jit.TinyJit
    def double(x: Tensor) -> Tensor:
        return (x * 2).realize()

    assert double(Tensor([1.0]).realize()).item() == 2.0
    assert double.num_captures == 0
    got = [double(Tensor([float(n)]).realize()).item() for n in range(4)]
    assert got == [0.0, 2.0, 4.0, 6.0]
    assert double.num_captures == 1
    assert double.cnt == 5


def test_a_changed_attribute_is_seen_by_a_method() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @jit.TinyJit
        def run(self, x: Tensor) -> Tensor:
            return (x * self.factor).realize()

    first, second = Scale(2.0), Scale(3.0)
    x = Tensor([1.0]).realize()
    for _ in range(3):
        assert first.run(x).item() == 2.0
        assert second.run(x).item() == 3.0
    first.factor = 5.0
    assert first.run(x).item() == 5.0


def test_a_pickled_jit_replays_without_its_function() -> None:
    scale = Tensor([3.0]).clone().realize()
    run = jit.TinyJit(lambda x: (x * scale).realize(), prune=True)
    for _ in range(2):
        run(Tensor([1.0]).clone().realize())
    again = pickle.loads(pickle.dumps(run))
    assert again(Tensor([2.0]).clone().realize()).tolist() == [6.0]


def test_a_jit_that_captured_nothing_cannot_be_pickled() -> None:
    with pytest.raises(errors.CaptureError, match="nothing has been captured"):
        pickle.dumps(jit.TinyJit(lambda x: x))


def test_kernels_and_memory_are_counted() -> None:
    counters = root.GlobalCounters
    counters.reset()
    kept = (Tensor([1.0, 2.0]) + 1).realize()
    assert counters.kernel_count >= 1
    assert counters.mem_used >= kept.nbytes()
