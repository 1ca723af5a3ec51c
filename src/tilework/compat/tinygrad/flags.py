"""`getenv`, `ContextVar`, `Context` and the flags that programs read."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Final, Generic, TypeVar

from tilework import Device, Tensor, errors, settings
from tilework.base.cores import available_cores

T = TypeVar("T")


def getenv(key: str, default: Any = 0) -> Any:
    """A variable of the environment in the type of `default`."""
    found = settings.program_variable(key)
    return default if found is None else type(default)(found)


class ContextVar(Generic[T]):
    """A flag: its value is that of the environment until a program or a `Context` changes it."""

    known: ClassVar[dict[str, ContextVar[Any]]] = {}

    def __init__(self, key: str, default_value: T) -> None:
        if key in ContextVar.known:
            raise errors.UserError(f"ContextVar: there is a flag {key} already")
        ContextVar.known[key] = self
        self.key = key
        self._value: T = getenv(key, default_value)

    @property
    def value(self) -> T:
        """What it is now."""
        return self._value

    @value.setter
    def value(self, value: T) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"ContextVar({self.key}={self.value!r})"

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)  # type: ignore[call-overload,no-any-return]  # flags are numbers

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other)

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= other)

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > other)

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= other)


class _Training(ContextVar[int]):
    """The flag TRAINING is `Tensor.training`."""

    def __init__(self, key: str, default_value: int) -> None:
        super().__init__(key, default_value)
        if self._value:
            self.value = self._value

    @property
    def value(self) -> int:
        """1 in training."""
        return int(Tensor.training)

    @value.setter
    def value(self, value: int) -> None:
        Tensor.training = bool(value)


class _DefaultDevice(ContextVar[str]):
    """The flag DEV is `Device.DEFAULT`."""

    @property
    def value(self) -> str:
        """The name of the default device."""
        return Device.DEFAULT

    @value.setter
    def value(self, value: str) -> None:
        Device.DEFAULT = value


class _Fixed(ContextVar[str]):
    """A flag that can have one value here."""

    def __init__(self, key: str, default_value: str) -> None:
        super().__init__(key, default_value)
        given, self._value = self._value, default_value
        self.value = given

    @property
    def value(self) -> str:
        """Its one value."""
        return self._value

    @value.setter
    def value(self, value: str) -> None:
        if value != self._value:
            raise errors.UnsupportedError(
                f"{self.key}: only {self._value} can be the default here",
                got=value,
                try_="give dtype= where tensors are made",
            )


class Context(contextlib.ContextDecorator):
    """Flags with other values while a block (or a decorated function) runs.

    Args:
        **flags: values by the names of flags.

    Raises:
        UserError: on entry, a flag is not known.
    """

    def __init__(self, **flags: Any) -> None:
        self._flags = flags
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        unknown = [key for key in self._flags if key not in ContextVar.known]
        if unknown:
            raise errors.UserError("Context: there is no such flag", got=", ".join(unknown))
        self._before.append({key: ContextVar.known[key].value for key in self._flags})
        for key, value in self._flags.items():
            ContextVar.known[key].value = value

    def __exit__(self, *error: object) -> None:
        for key, value in self._before.pop().items():
            ContextVar.known[key].value = value


#: Flags that programs may read and set; but for DEBUG and JIT nothing here follows them.
NUMBERS: Final = {
    "ALL2ALL": 0, "ALLOW_DEVICE_USAGE": 1, "ALLOW_TF32": 0, "ALLREDUCE_CAST": 1, "BEAM": 0,
    "CACHELEVEL": 2, "CAPTURE_PROCESS_REPLAY": 0, "CAPTURING": 1, "CCACHE": 1, "CHECK_OOB": 0,
    "DEBUG": 0, "DEBUG_RANGEIFY": 0, "DISABLE_FAST_IDIV": 1, "DISALLOW_BROADCAST": 0,
    "FLOAT16": 0, "FUSE_OPTIM": 0, "IGNORE_BEAM_CACHE": 0, "IMAGE": 0, "JIT": 1,
    "JIT_BATCH_SIZE": 32, "LRU": 1, "MAX_BUFFER_SIZE": 0, "MAX_KERNEL_BUFFERS": 0,
    "NOLOCALS": 0, "NOOPT": 0, "NO_COLOR": 0, "NO_MEMORY_PLANNER": 0, "NULL_ALLOW_COPYOUT": 0,
    "NUM_CPU_THREADS": available_cores(), "OPENPILOT_HACKS": 0, "PARALLEL": 0,
    "PCONTIG": 0, "PROFILE": 0, "RING": 1, "SCACHE": 1, "SPEC": 1, "SPLIT_REDUCEOP": 1, "TC": 1,
    "TC_OPT": 0, "TC_SELECT": -1, "TRACEMETA": 1, "TRANSCENDENTAL": 1, "TUPLE_ORDER": 1,
    "USE_ATOMICS": 0, "VALIDATE_WITH_CPU": 0, "VIZ": 0, "WINO": 0,
}  # fmt: skip

#: All flags by the name that `tinygrad.helpers` gives them.
FLAGS: Final[dict[str, ContextVar[Any]]] = {
    {"TC": "USE_TC"}.get(key, key): ContextVar(key, default) for key, default in NUMBERS.items()
}
FLAGS["TRAINING"] = _Training("TRAINING", 0)
FLAGS["DEV"] = _DefaultDevice("DEV", "")
FLAGS["DEFAULT_FLOAT"] = _Fixed("DEFAULT_FLOAT", "float32")
FLAGS["DEFAULT_INT"] = _Fixed("DEFAULT_INT", "int32")
FLAGS["EMULATED_DTYPES"] = ContextVar("EMULATED_DTYPES", "")
