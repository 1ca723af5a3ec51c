"""Write docs/reference/api/ from the docstrings; `--check` only compares."""

import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import tilework
from tilework import Tensor, nn
from tilework.nn import distributions, func, functional, init, media, optim, state, utils

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api"
NOTE = "Made by `python scripts/make_api_reference.py`; do not edit."

#: Page of methods of Tensor -> its title, and the families (classes) whose methods it shows.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tensor": ("Tensors", ("Tensor", "TensorBase", "PythonProtocols", "Differentiation")),
    "creation": ("Making tensors", ("Creation", "Random", "Hashing", "Drawing")),
    "conversion": ("Dtypes and quantisation", ("Conversion", "Quantising")),
    "movement": ("Shapes and order", ("Movement", "Joining", "Arranging", "Familiar")),
    "indexing": (
        "Indexing and writing",
        ("Assigning", "Indexing", "Gathering", "Selecting", "Counting", "Sorting"),
    ),
    "elementwise": ("Elementwise functions", ("Elementwise", "Functions", "Numeric")),
    "activations": ("Activations and layers as functions", ("Activations", "Functional")),
    "reduce": ("Reductions, scans and statistics", ("Reduce", "Statistics")),
    "linalg": (
        "Products and linear algebra",
        (
            "Linalg", "Products", "Decompositions", "Eliminating", "Reflecting", "Solving",
            "Spectral",
        ),
    ),
    "special": ("Special functions", ("Special", "Polynomials")),
    "fourier": ("Fourier transforms and windows", ("Fourier", "Signals")),
    "convolution": (
        "Convolution, pooling and resizing",
        ("Convolution", "Transposed", "Pooling", "Resizing"),
    ),
    "losses": ("Losses", ("Losses", "CrossEntropy")),
    "sharding": ("Several devices", ("Sharding",)),
    "names": (
        "Further names, and writing in place",
        ("Aliases", "InPlace", "FurtherInPlace", "TorchNames"),
    ),
}  # fmt: skip

#: Page of functions and classes -> its title, and what it shows by name.
PARTS: dict[str, tuple[str, Any]] = {
    "layers": ("Layers", nn),
    "functional": ("Functions under PyTorch's names", functional),
    "optim": ("Optimizers and schedules", optim),
    "func": ("Functions of functions", func),
    "distributions": ("Distributions", distributions),
    "init": ("First values of parameters", init),
    "utils": ("Gradients, vectors and fused layers", utils),
    "parametrize": ("Computed parameters", utils.parametrize),
    "sequences": ("Sequences of several lengths", utils.rnn),
    "state": ("Weights in files", state),
    "media": ("Pictures and sound", media),
    "tilework": ("The package", tilework),
}

_SECTION = re.compile(r"^(Args|Shape|Returns|Raises|Example|Examples):(.*)$")


def other_families() -> list[str]:
    """The families of methods that no page shows."""
    shown = {name for _, names in FAMILIES.values() for name in names}
    return [each.__name__ for each in Tensor.__mro__[:-1] if each.__name__ not in shown]


def title_of(name: str, item: Any) -> str:
    """The heading of a function: its name and its parameters, without their types."""
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return f"`{name}`"
    shown = []
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        plain = each.replace(annotation=inspect.Parameter.empty)
        shown.append(str(plain))
    kinds = [each.kind for each in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        names = [each.name for each in signature.parameters.values()
                 if each.name not in ("self", "cls")]  # fmt: skip
        first = next(each.name for each in signature.parameters.values()
                     if each.kind is inspect.Parameter.KEYWORD_ONLY)  # fmt: skip
        shown.insert(names.index(first), "*")
    return f"`{name}({', '.join(shown)})`"


def text_of(item: Any) -> list[str]:
    """A docstring as Markdown: sections as paragraphs and lists, examples as code."""
    lines = inspect.cleandoc(inspect.getdoc(item) or "").splitlines()
    found: list[str] = []
    place = 0
    while place < len(lines):
        section = _SECTION.match(lines[place])
        if section is None:
            found.append(lines[place].strip() if lines[place].startswith(" ") else lines[place])
            place += 1
            continue
        name, rest = section.groups()
        place += 1
        body = []
        while place < len(lines) and (not lines[place] or lines[place].startswith(" ")):
            body.append(lines[place])
            place += 1
        found += _section(name, rest.strip(), textwrap.dedent("\n".join(body)).strip("\n"))
    return found


def _section(name: str, rest: str, body: str) -> list[str]:
    if name.startswith("Example"):
        return ["```python", *body.splitlines(), "```", ""]
    if name in ("Shape", "Returns"):
        whole = " ".join([rest, *[line.strip() for line in body.splitlines()]]).strip()
        return [f"{name}: {whole}", ""]
    rows: list[str] = []
    for line in body.splitlines():
        if line.startswith(" ") and rows:
            rows[-1] += " " + line.strip()
        elif line.strip():
            rows.append(line.strip())
    marked = [re.sub(r"^([\w*, ]+):", r"`\1`:", row) for row in rows]
    return [f"{name}:", "", *[f"- {row}" for row in marked], ""]


def entry(name: str, item: Any) -> list[str]:
    """The part of a page for one function, class or property."""
    head = f"`{name}`" if isinstance(item, property) else title_of(name, item)
    return [f"## {head}", "", *text_of(item), ""]


def family_page(title: str, names: tuple[str, ...]) -> str:
    """The page of some families of methods of Tensor."""
    lines = [f"# {title}", "", NOTE, ""]
    for kind in Tensor.__mro__:
        if kind.__name__ not in names:
            continue
        below = kind.__mro__[1:-1]
        for name in sorted(vars(kind)):
            is_of_another = any(name in vars(each) for each in below)
            if name.startswith("_") or name == "training" or is_of_another:
                continue
            item = inspect.getattr_static(kind, name)
            plain = item.__func__ if isinstance(item, classmethod | staticmethod) else item
            if not (callable(plain) or isinstance(plain, property)):
                continue
            lines += entry(f"Tensor.{name}", plain)
    return _page(lines)


def part_page(title: str, module: Any) -> str:
    """The page of what a module offers."""
    lines = [f"# {title}", "", NOTE, ""]
    own = [name for name, item in vars(module).items()
           if getattr(item, "__module__", "") == module.__name__]  # fmt: skip
    names = getattr(module, "__all__", own)
    for name in sorted(names, key=str.lower):
        item = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(item) or not callable(item) or item is Tensor:
            continue
        lines += entry(name, item)
        for each in sorted(vars(item)) if inspect.isclass(item) else ():
            method = inspect.getattr_static(item, each)
            if not each.startswith("_") and inspect.isfunction(method) and method.__doc__:
                first = inspect.cleandoc(method.__doc__).splitlines()[0]
                lines += [f"- {title_of(f'{name}.{each}', method)}: {first}"]
        lines.append("")
    return _page(lines)


def _page(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def index_page(pages: dict[str, str]) -> str:
    """The index, with the number of entries of each page."""
    lines = ["# Interface", "", NOTE, "", "| page | entries |", "| --- | --- |"]
    for name, text in pages.items():
        title = text.splitlines()[0].removeprefix("# ")
        lines.append(f"| [{title}]({name}.md) | {text.count(chr(10) + '## ')} |")
    return "\n".join(lines) + "\n"


def make_pages() -> dict[str, str]:
    """All pages by name."""
    pages = {name: family_page(*row) for name, row in FAMILIES.items()}
    pages |= {name: part_page(*row) for name, row in PARTS.items()}
    return {"README": index_page(pages), **pages}


def main() -> int:
    """Write or compare the pages; return the exit status."""
    if missing := other_families():
        print(f"no page shows {', '.join(missing)}; add them to FAMILIES")
        return 1
    is_check = "--check" in sys.argv[1:]
    stale = []
    for name, text in make_pages().items():
        path = FOLDER / f"{name}.md"
        if is_check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(path.name)
        elif not is_check:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for page in stale:
        print(f"docs/reference/api/{page} is not current; run scripts/make_api_reference.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
