"""GEN-03: importing any module of tilework changes nothing in the process."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"

# Third-party packages come first: what they do at import is theirs (BLAS threads, for example).
SCRIPT = """
import importlib, json, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
import asyncio, ctypes, gc, locale, multiprocessing, os, resource, signal, socket, threading
import warnings
import multiprocessing.util, concurrent.futures.process

def state():
    umask = os.umask(0); os.umask(umask)
    return {
        "umask": umask,
        "fds": sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else [],
        "threads": threading.active_count(),
        "tasks": len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0,
        "children": len(multiprocessing.active_children()),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
        "limits": [resource.getrlimit(n) for n in range(10)],
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "collector": [gc.isenabled(), gc.get_threshold()],
        "locale": locale.setlocale(locale.LC_ALL),
        "warning filters": len(warnings.filters),
        "meta path": [str(item) for item in sys.meta_path],
        "hooks": [str(sys.excepthook), str(sys.displayhook), str(threading.excepthook)],
        "socket timeout": socket.getdefaulttimeout(),
        "float": [repr(x) for x in (0.1 + 0.2, 5e-324 * 1.0)],
    }

changed = {}
for module in json.loads(sys.argv[1]):
    before = state()
    importlib.import_module(module)
    after = state()
    for name in before:
        if before[name] != after[name]:
            changed.setdefault(module, []).append([name, before[name], after[name]])
print(json.dumps(changed))
"""


def modules() -> list[str]:
    names = []
    for path in sorted(SOURCES.rglob("*.py")):
        parts = list(path.relative_to(SOURCES).with_suffix("").parts)
        if parts[-1] == "__main__":
            continue
        if parts[-1] == "__init__":
            parts.pop()
        if (SOURCES / parts[0] / "__init__.py").exists() or parts[0] == "tilework":
            names.append(".".join(parts))
    return names


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def third_party() -> list[str]:
    """What some source imports, so that its own effects come before the first snapshot."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    found = ["numpy", "llvmlite.binding", "safetensors", "rich.console", "onnx", "matplotlib"]
    if "import torch" in text:
        found.append("torch")
    return [name for name in found if find_spec(name.split(".")[0]) is not None]


def test_GEN_03_importing_any_module_changes_no_state_of_the_process() -> None:
    assert json.loads(run(SCRIPT, json.dumps(modules()), *third_party())) == {}


def test_every_module_is_looked_at() -> None:
    assert {"tilework.base.errors", "tilework.testing.evidence"} <= set(modules())


CORE = {"base", "dtypes", "ir", "target", "schedule", "codegen", "render"}


def test_the_compiler_core_imports_the_standard_library_alone() -> None:
    core = [name for name in modules() if name.count(".") and name.split(".")[1] in CORE]
    script = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(json.dumps(sorted(names - set(sys.stdlib_module_names))))\n"
    )
    found = [name for name in json.loads(run(script, json.dumps(core))) if not name.startswith("_")]
    assert [name for name in found if not name.startswith(("tilework", "sitecustomize"))] == []
