"""The options of tilework, and the only code that reads the environment.

Precedence: an argument of the call > `override(...)` > `TILEWORK_*` > `tilework.toml` > default.
The environment and the file are read once, at the first `current()`, never at import.

A field's variable is `TILEWORK_` and its name in capitals; `DEV` is short for `TILEWORK_DEV`.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Flag, auto
from pathlib import Path
from types import FrameType
from typing import Any, Literal, get_args, get_origin

from tilework.base import trace
from tilework.base.cores import available_cores
from tilework.base.errors import SettingsError, TileworkWarning
from tilework.base.forks import new_lock
from tilework.base.records import Field, asdict, dataclass, field, fields, replace
from tilework.base.text import join_names, nearest, parse_bytes

PREFIX = "TILEWORK_"
CONFIG_FILE = "tilework.toml"
_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep

FpMode = Literal["strict", "contract", "fast"]
Autocast = Literal["", "float16", "bfloat16"]
VerifyMode = Literal["off", "stage", "pass"]
AllReduce = Literal["auto", "naive", "ring", "all2all", "library"]


class Affects(Flag):
    """What a setting may change; the caches for it are keyed on the setting."""

    NOTHING = 0
    SCHEDULE = auto()
    CODE = auto()
    RUNTIME = auto()


def setting(
    default: Any,
    doc: str,
    affects: Affects = Affects.NOTHING,
    *,
    least: int | None = None,
    most: int | None = None,
    is_size: bool = False,
) -> Any:
    """Declare a field of `Settings`.

    Args:
        default: its value when nobody says otherwise.
        doc: one line for the reference and for messages.
        affects: which caches must be keyed on it.
        least: smallest integer that it takes.
        most: largest integer that it takes.
        is_size: whether text such as "2 GiB" is understood.
    """
    metadata = {"doc": doc, "affects": affects, "least": least, "most": most, "is_size": is_size}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """An immutable set of options; make changes with `override`."""

    dev: str = setting("CPU", "default device, [interface+]DEVICE[:renderer[:arch]]")
    cache_dir: Path | None = setting(None, "folder of the disk caches; empty turns them off")
    cache_size_bytes: int = setting(
        2 << 30, "largest size of the disk caches", least=0, is_size=True
    )
    num_threads: int = setting(
        0, "threads of the CPU device; 0 takes every core it may use", Affects.RUNTIME, least=0
    )
    memory_limit: int = setting(
        0, "bytes a device may allocate; 0 is no limit", Affects.RUNTIME, least=0, is_size=True
    )
    fp_mode: FpMode = setting(
        "strict",
        "strict rounds each op as written, contract allows FMA, fast also reassociates and"
        " multiplies by reciprocals, by the rules in docs/fp-modes.md",
        Affects.SCHEDULE | Affects.CODE,
    )
    allow_tf32: bool = setting(
        False,
        "let float32 products be shortened to TF32 where a device has matrix units for it",
        Affects.SCHEDULE | Affects.CODE,
    )
    keep_subnormals: bool = setting(
        False,
        "use no matrix unit that takes subnormal numbers for zeros (AMX, for products of bfloat16)",
        Affects.SCHEDULE | Affects.CODE,
    )
    autocast: Autocast = setting(
        "", "make products of wider floats in this dtype; `tilework.autocast` sets it for a block"
    )
    deterministic: bool = setting(
        False,
        "fix the order of additions across tuned plans (none is used) and device counts",
        Affects.SCHEDULE | Affects.CODE,
    )
    allreduce: AllReduce = setting(
        "auto", "how values of several devices are folded into one", Affects.SCHEDULE
    )
    check_index: bool = setting(
        True, "report device-computed indexes that are out of range", Affects.SCHEDULE
    )
    verify: VerifyMode = setting("stage", "check graphs never, at stage borders, or at each pass")
    validate: bool = setting(
        False, "run each kernel on a reference too, and raise at the first one that differs"
    )
    poison: bool = setting(
        False,
        "fill memory that holds nothing with NaN patterns: new, freed, and between two kernels",
        Affects.SCHEDULE | Affects.RUNTIME,
    )
    prove_accesses: bool = setting(
        False, "refuse kernels with an access that is not proven to lie inside of its buffer"
    )
    check_accesses: bool = setting(
        False,
        "compile a check into kernels for each access that is not proven to lie inside of its"
        " buffer; it is left out and reported when it would not",
    )
    keep_builds: bool = setting(
        False,
        "keep source, symbols, compiler's log and key of what is compiled beside the object code",
    )
    log_level: int = setting(0, "0 silent, 1 devices, 2 kernels, 3 passes, 4 IR", least=0, most=4)
    compile_workers: int = setting(
        0, "processes that compile kernels; 0 takes one per core", least=0
    )
    show_internal_frames: bool = setting(False, "keep tilework's own frames in tracebacks")
    prepack: bool = setting(
        True, "keep constants of captured programs packed as kernels like them, at twice the memory"
    )
    captures: int = setting(
        8, "signatures that a jit keeps; 1 freezes, so a change is an error", least=1
    )

    def key(self, affects: Affects) -> tuple[tuple[str, Any], ...]:
        """The part of these settings that a cache for `affects` must be keyed on."""
        return tuple((name, getattr(self, name)) for name in _names_that_affect(affects))

    def thread_count(self) -> int:
        """The threads that `num_threads` stands for on this machine, at least one."""
        return self.num_threads or available_cores()

    def worker_count(self) -> int:
        """The processes that `compile_workers` stands for on this machine, at least one."""
        return self.compile_workers or available_cores()

    def to_plain(self) -> dict[str, str | int | bool | None]:
        """Return every field as plain data, to hand to another process; see `from_plain`."""
        plain = asdict(self)
        plain["cache_dir"] = None if self.cache_dir is None else str(self.cache_dir)
        return plain


def _names_that_affect(affects: Affects) -> tuple[str, ...]:
    found = _NAMES_BY_EFFECT.get(affects)
    if found is None:
        found = tuple(row.name for row in fields(Settings) if row.metadata["affects"] & affects)
        _NAMES_BY_EFFECT[affects] = found
    return found


# Filled on demand, bounded by the number of `Affects` values; never stale, as fields are fixed.
_NAMES_BY_EFFECT: dict[Affects, tuple[str, ...]] = {}
_FIELDS: dict[str, Field[Any]] = {row.name: row for row in fields(Settings)}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


# --- values ------------------------------------------------------------------------------------


def _reject(row: Field[Any], value: object, expected: str, source: str) -> SettingsError:
    return SettingsError(
        f"settings: `{row.name}` cannot take this value",
        got=f"{value!r} from {source}",
        expected=f"{expected} ({row.metadata['doc']})",
    )


def _as_bool(row: Field[Any], value: object, source: str) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if isinstance(value, (str, int)) and text in _TRUE | _FALSE:
        return text in _TRUE
    raise _reject(row, value, "1 or 0, true or false", source)


def _as_int(row: Field[Any], value: object, source: str) -> int:
    least, most = row.metadata["least"], row.metadata["most"]
    bound = "an integer" if least is None else f"an integer of at least {least}"
    bound += "" if most is None else f" and at most {most}"
    if row.metadata["is_size"]:
        bound += ", or a size such as 2 GiB"
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str):
        number = _parse_int(value, row.metadata["is_size"])
    if number is None:
        raise _reject(row, value, bound, source)
    if (least is not None and number < least) or (most is not None and number > most):
        raise _reject(row, value, bound, source)
    return number


def _parse_int(text: str, is_size: bool) -> int | None:
    digits = text.strip().removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return int(text)
    return parse_bytes(text) if is_size else None


def _as_path(row: Field[Any], value: object, source: str) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise _reject(row, value, "a folder, or nothing", source)
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:  # "~" without a home
        raise _reject(row, value, "a folder below a home that exists", source) from error


def _convert(name: str, value: object, source: str) -> Any:
    row = _FIELDS[name]
    if row.type is bool:
        return _as_bool(row, value, source)
    if row.type is int:
        return _as_int(row, value, source)
    if row.type is str:
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise _reject(row, value, "text", source)
    if get_origin(row.type) is Literal:
        choices = get_args(row.type)
        if isinstance(value, str) and value.strip().lower() in choices:
            return value.strip().lower()
        raise _reject(row, value, join_names(choices), source)
    return _as_path(row, value, source)


def _unknown(name: str, source: str) -> SettingsError:
    close = nearest(name, _FIELDS)
    return SettingsError(
        f"settings: {source} has no setting of this name",
        got=name,
        expected=f"one of {', '.join(sorted(_FIELDS))}",
        try_=None if close is None else f"`{close}`",
    )


def _checked(changes: Mapping[str, object], source: str) -> dict[str, Any]:
    for name in changes:
        if name not in _FIELDS:
            raise _unknown(name, source)
    return {name: _convert(name, value, source) for name, value in changes.items()}


# --- where values come from --------------------------------------------------------------------


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings: cannot read {path}", got=str(error)) from error
    import tomllib  # here, since start-up time counts and most folders have no such file

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"settings: {path} is not TOML", got=str(error)) from error
    # A table is a group; a field's name is unique over all groups.
    flat: dict[str, object] = {}
    for name, value in table.items():
        flat.update(value if isinstance(value, dict) else {name: value})
    return _checked(flat, CONFIG_FILE)


def _depth_of_package() -> int:
    """Return how many of the innermost frames are tilework's, counted from the caller's, plus 1."""
    depth = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        depth += 1
    return depth


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable in unknown_variables(environment):
        close = nearest(variable, [PREFIX + name.upper() for name in _FIELDS])
        hint = "" if close is None else f"; did you mean {close}?"
        warnings.warn(
            f"{variable} is not a setting of tilework{hint}",
            TileworkWarning,
            stacklevel=_depth_of_package(),
        )
    for name in _FIELDS:
        variable = PREFIX + name.upper()
        if variable not in environment and name == "dev":
            variable = "DEV"
        if variable in environment and not (variable == "DEV" and not environment[variable]):
            found[name] = _convert(name, environment[variable], f"the variable {variable}")
    return found


def unknown_variables(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the `TILEWORK_*` variables that name no setting (a command line refuses them)."""
    given = os.environ if environment is None else environment
    known = {PREFIX + name.upper() for name in _FIELDS}
    return tuple(sorted(name for name in given if name.startswith(PREFIX) and name not in known))


def program_variable(name: str) -> str | None:
    """Return a variable that a program reads under a name of its own, or None.

    Settings of tilework are not read through here.
    """
    return os.environ.get(name)


def default_cache_dir(environment: Mapping[str, str]) -> Path | None:
    """Return the cache folder for this user, or None where no home is known."""
    root = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(root):
        return Path(root) / "tilework"
    try:
        home = Path.home()
    except RuntimeError:  # no home in the environment nor in the user database
        return None
    return home / ".cache" / "tilework"


def load(environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """Read settings afresh, without making them current.

    Args:
        environment: variables; None takes those of the process.
        folder: where `tilework.toml` may lie; None is the current folder.

    Raises:
        SettingsError: a value or a name of the file, or a value of a variable, is not accepted.
    """
    given = os.environ if environment is None else environment
    values = _from_file((folder or Path()) / CONFIG_FILE) | _from_environment(given)
    if "cache_dir" not in values:
        values["cache_dir"] = default_cache_dir(given)
        if values["cache_dir"] is None:
            trace.warn("settings", "no home folder is known, so nothing is cached on disk")
    return Settings(**values)


def environment() -> Mapping[str, str]:
    """Return the variables of the process, for conventions of other programs (launchers)."""
    return os.environ


def from_plain(plain: Mapping[str, object]) -> Settings:
    """Rebuild the settings that `Settings.to_plain` described."""
    return Settings(**_checked(plain, "the given data"))


# --- the current settings ----------------------------------------------------------------------


class _Process:
    """The settings of the process, read once."""

    lock = new_lock()
    settings: Settings | None = None


_overridden: ContextVar[Settings | None] = ContextVar("tilework_settings", default=None)


def current() -> Settings:
    """Return the settings in force here.

    Raises:
        SettingsError: at the first call, if the environment or `tilework.toml` is wrong.
    """
    found = _overridden.get()
    if found is not None:
        return found
    if _Process.settings is None:
        with _Process.lock:
            if _Process.settings is None:
                _Process.settings = load()
    return _Process.settings


def install(settings: Settings | None) -> None:
    """Set the settings of the whole process: a compile worker takes over those of its parent.

    None makes the next `current()` read the environment again.
    """
    with _Process.lock:
        _Process.settings = settings


@contextmanager
def override(**changes: object) -> Iterator[Settings]:
    """Change settings for this thread or task while the block runs.

    Raises:
        SettingsError: a name or a value is not accepted.

    Example:
        >>> with override(fp_mode="contract") as settings:
        ...     settings is current(), settings.fp_mode
        (True, 'contract')
    """
    settings = replace(current(), **_checked(changes, "override"))
    token = _overridden.set(settings)
    try:
        yield settings
    finally:
        _overridden.reset(token)


def carry(function: Callable[[], Any]) -> Callable[[], Any]:
    """Bind the settings in force here to `function`, which another thread will call."""
    settings = current()

    def run() -> Any:
        token = _overridden.set(settings)
        try:
            return function()
        finally:
            _overridden.reset(token)

    return run


def describe() -> str:
    """Return the reference of all settings as Markdown rows."""
    rows = ["| setting | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for name, row in _FIELDS.items():
        default = "see text" if name == "cache_dir" else repr(row.default)
        rows.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {default} | {row.metadata['doc']} |")
    return "\n".join(rows)
