"""What a model file says, as immutable records without any trace of protocol buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilework.base.records import dataclass, field

if TYPE_CHECKING:
    import numpy as np

    from tilework.dtypes import DType

#: A size: a number, the name of a symbolic size, or None where nothing is known.
Dim = int | str | None
#: Domain, name and overload, which tell a model's functions apart.
FunctionKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A graph's input or output, as the file declares it.

    `dtype` and `shape` are None where the file does not say; a declared shape of an *output* is a
    hint only, since real files are wrong there.  `kind` is "tensor", "sequence" or "optional".
    """

    name: str
    dtype: DType | None = None
    shape: tuple[Dim, ...] | None = None
    kind: str = "tensor"

    def __str__(self) -> str:
        """Render as `name: float32[1, 3, height, ?]`."""
        dtype = "?" if self.dtype is None else self.dtype.name
        if self.shape is None:
            return f"{self.name}: {dtype}[...]"
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        prefix = "" if self.kind == "tensor" else f"{self.kind} of "
        return f"{self.name}: {prefix}{dtype}[{sizes}]"


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a function's node whose value the caller's attribute `name` gives."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator call.  An empty name among `inputs` or `outputs` means "not given"."""

    op: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    overload: str = ""

    @property
    def key(self) -> FunctionKey:
        """What the function that the node calls would be found by, if the model defines one."""
        return self.domain, self.op, self.overload

    def __str__(self) -> str:
        """Render as `Conv 'conv1' (ai.onnx 13)`."""
        return f"{self.op} {self.name!r} ({self.domain or 'ai.onnx'} {self.version})"

    def subgraphs(self) -> Iterator[Graph]:
        """Yield the graphs among the attributes (branches, loop bodies)."""
        for value in self.attributes.values():
            if isinstance(value, Graph):
                yield value


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes in an order in which each comes after what it reads.

    `constants` are the initialisers; one that is also an input is that input's default.
    """

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray[Any, Any]]

    def all_nodes(self) -> Iterator[Node]:
        """Yield every node, those of subgraphs included."""
        waiting = [self]
        while waiting:
            graph = waiting.pop()
            for node in graph.nodes:
                yield node
                waiting.extend(node.subgraphs())

    def free_names(self) -> frozenset[str]:
        """Return the names that this graph reads from the graphs around it."""
        known = {info.name for info in self.inputs} | set(self.constants) | {""}
        free: set[str] = set()
        for node in self.nodes:
            free.update(name for name in node.inputs if name not in known)
            for inner in node.subgraphs():
                free.update(inner.free_names() - known)
            known.update(node.outputs)
        free.update(info.name for info in self.outputs if info.name not in known)
        return frozenset(free)


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An operator that the model itself defines by a graph."""

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: Mapping[str, Any]
    nodes: tuple[Node, ...]
    overload: str = ""

    @property
    def key(self) -> FunctionKey:
        """What calls find it by."""
        return self.domain, self.name, self.overload

    def __str__(self) -> str:
        """Render as `local.scale`, with the overload after a colon."""
        return f"{self.domain}.{self.name}" + (f":{self.overload}" if self.overload else "")

    def all_nodes(self) -> Iterator[Node]:
        """Yield every node of the body, those of subgraphs included."""
        return Graph(self.name, (), (), self.nodes, {}).all_nodes()


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A whole file: the graph, its opset per domain, its own functions and its metadata."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[FunctionKey, Function] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    producer: str = ""
    ir_version: int = 0

    def all_nodes(self) -> Iterator[Node]:
        """Yield every node of the graph, its subgraphs and the model's functions."""
        yield from self.graph.all_nodes()
        for function in self.functions.values():
            yield from function.all_nodes()
