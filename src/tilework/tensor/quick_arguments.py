"""The checks of a call's arguments, written out for `tensor.quick`.

Each tensor gets the names `t0`, `t1`, ... in the order of the call, each variable's value `n0`,
`n1`, ...  What is written here lets no call pass that `Captured.bind` would refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tilework.engine.guards import same_value
from tilework.ir.types import TYPES, Memory
from tilework.tensor.signature import Branch, Leaf, Tree
from tilework.tensor.variable import Variable

if TYPE_CHECKING:
    from tilework.ir.types import Type
    from tilework.tensor.captured import Captured

#: A version that is looked at: the storage's slot, the local name and the argument.
_OWN_REFERENCES: Final = 3


def _types_like(known: Type) -> tuple[Type, Type]:
    """A tensor's type, and that of others of the same shape and dtype; see `is_alike`.

    What was computed has the type of a value, what came from elsewhere that of its memory: a result
    that is given to the same function again differs in that alone.
    """
    memory = Memory.GLOBAL if known.memory is None else None
    return known, TYPES.make(known.shape, known.dtype, memory)


class ArgumentWriter:
    """Writes the lines that take the arguments `args` and `kwargs` apart and compare them.

    Args:
        captured: the capture whose calls are accepted.
        miss: writes a line that refuses the call where a condition holds.
        check: writes a line among the checks.
        name_of: gives a name for an object.
    """

    def __init__(
        self,
        captured: Captured,
        miss: Callable[[str], None],
        check: Callable[[str], None],
        name_of: Callable[[object], str],
    ) -> None:
        self._captured = captured
        self._recipe = captured.recipe
        self._miss = miss
        self._check = check
        self._name_of = name_of
        #: Places of the program's inputs: the name of the argument's address for each.
        self.addresses: dict[int, str] = {}
        #: What stands for the value of each variable.
        self.values = {name: str(value) for name, value in self._recipe.frozen.items()}
        self._given: set[str] = set()
        self._next = 0

    def can_write(self) -> bool:
        """Whether all arguments are of kinds that are written out."""
        if any(spec.variables for spec in self._recipe.tensors):
            return False
        waiting: list[Tree] = list(self._items())
        while waiting:
            top = waiting.pop()
            if isinstance(top, Branch):
                if top.kind not in (list, tuple, dict) and not hasattr(top.kind, "_fields"):
                    return False
                waiting.extend(top.items)
        names = {name for row in self._recipe.variables for name in row.names}
        wanted = {row.name for row in self._recipe.program.variables}
        return wanted <= names | self._recipe.frozen.keys()

    def write(self) -> None:
        """Write all lines."""
        tree, items = self._recipe.tree, self._items()
        keys = tree.keys if isinstance(tree, Branch) and tree.keys is not None else ()
        count = len(items) - len(keys)
        self._unpack(items[:count], "args")
        self._miss(f"len(kwargs) != {len(keys)}" if keys else "kwargs")
        for key, item in zip(keys, items[count:], strict=True):
            name = self._target(item)
            self._check(f"{name} = kwargs[{self._name_of(key)}]")
            self._write_item(item, name)
        self._write_bounds()
        self._write_overlaps()

    def _items(self) -> tuple[Tree, ...]:
        tree = self._recipe.tree
        return tree.items if isinstance(tree, Branch) else ()

    def _target(self, item: Tree) -> str:
        """The name that a part of the arguments gets."""
        if isinstance(item, Leaf) and item.kind == "tensor":
            return f"t{item.number}"
        self._next += 1
        return f"x{self._next}"

    def _unpack(self, items: tuple[Tree, ...], source: str) -> None:
        """Take a sequence apart; another number of items raises ValueError, which refuses."""
        names = [self._target(item) for item in items]
        self._check(f"{', '.join(names)}, = {source}" if names else f"() = {source}")
        for item, name in zip(items, names, strict=True):
            self._write_item(item, name)

    def _write_item(self, item: Tree, name: str) -> None:
        if isinstance(item, Branch):
            self._miss(f"type({name}) is not {self._name_of(item.kind)}")
            if item.keys is None:
                self._unpack(item.items, name)
            else:
                self._miss(f"[*{name}] != {self._name_of(list(item.keys))}")
                self._unpack(item.items, f"{name}.values()")
        elif item.kind == "tensor":
            self._write_tensor(item.number)
        elif item.kind == "variable":
            self._write_variable(item.number, name)
        else:
            value = self._recipe.values[item.number]
            known = self._name_of(value)
            is_fixed = value is None or isinstance(value, bool)
            differs = "" if is_fixed else f" and not {self._name_of(same_value)}({name}, {known})"
            self._miss(f"{name} is not {known}{differs}")

    def _write_tensor(self, number: int) -> None:
        spec = self._recipe.tensors[number]
        is_written = spec.source in self._captured.written_inputs
        self._check(f"s = t{number}._storage; v = s.version; b = v.buffer; m = b._memory")
        differs = f" != {self._name_of(spec.chain)}" if spec.chain else ""
        own, other = map(self._name_of, _types_like(spec.type))
        self._miss(
            f"t{number}._chain{differs}"
            f" or (t{number}._type is not {own} and t{number}._type is not {other})"
            f" or v.node.type is not {self._name_of(spec.base)}"
            f" or v.device != {spec.device!r} or m.lease is not None"
        )
        wants = " or v.needs_gradient" if number in self._captured.constant_tensors else ""
        self._miss(f"t{number}._bindings is not None or v.bindings is not None{wants}")
        for fixed, storage in self._recipe.fixed_sources:
            if fixed == number:
                self._miss(f"s is not {self._name_of(storage)}")
        if self._captured.guarded:
            self._miss(f"id(m) in {self._name_of(self._captured.guarded)}")
        if is_written:
            # Whoever else has the version needs the old contents.
            self._miss(f"m.is_readonly or count_references(v) != {_OWN_REFERENCES}")
        known = self.addresses.get(spec.source)
        if known is not None:
            self._miss(f"b is not b{spec.source}")
            return
        self.addresses[spec.source] = f"a{spec.source}"
        self._check(f"a{spec.source} = m.address + b.offset_bytes; b{spec.source} = b")
        if is_written:
            self._check(f"m{spec.source} = m")

    def _write_variable(self, number: int, name: str) -> None:
        row = self._recipe.variables[number]
        self._miss(f"type({name}) is not {self._name_of(Variable)}")
        self._miss(f"{name}.node is not {self._name_of(row.node)}")
        if not row.names:
            self._miss(f"{name}.bindings")
            return
        self._check(f"b = {name}.bindings")
        self._miss(f"len(b) != {len(row.names)}")
        for each in row.names:
            value = f"b[{self._name_of(each)}]"
            if each in self._given:
                self._miss(f"{value} != {self.values[each]}")
                continue
            self.values[each] = f"n{len(self._given)}"
            self._given.add(each)
            self._check(f"{self.values[each]} = {value}")

    def _write_bounds(self) -> None:
        for row in self._recipe.program.variables:
            if row.name in self._given:
                self._miss(f"not {row.minimum} <= {self.values[row.name]} <= {row.maximum}")
        for name, value in self._recipe.pinned.items():
            self._miss(f"{self.values.get(name)} != {value}")

    def _write_overlaps(self) -> None:
        """Refuse arguments that share a byte with one that is written."""
        for written in self._captured.written_inputs:
            for other in self.addresses:
                if other != written:
                    self._miss(
                        f"a{written} < a{other} + b{other}.size_bytes"
                        f" and a{other} < a{written} + b{written}.size_bytes"
                    )
