"""Calls of C code that give something new each time: clocks, files, connections, random numbers.

A replay would give the old values again, and nothing that could be compared says so.  `Watcher`
tells of each call of C code while a function is captured; what is found here makes the function one
that is captured anew at each call, as one that draws random numbers is (`engine.draws`).

Clocks, and which thread runs, count where the user's own code reads them: what the standard
library does with the time, such as stamping a line of a log, is not a part of the result.  Files
and random numbers count at any depth, but not those that are read to show a warning or to import a
module.
"""

from __future__ import annotations

import types
from typing import Final

from tilework.engine.foreign import is_foreign_code, is_own_code

#: Functions by the module that has them.
_CLOCKS: Final = {
    "time": frozenset({
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
        "process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime",
        "clock_gettime_ns", "localtime", "gmtime", "ctime", "strftime", "asctime",
    }),
}  # fmt: skip
_SYSTEM: Final = frozenset({
    "urandom", "getrandom", "stat", "lstat", "fstat", "listdir", "scandir", "access", "getcwd",
    "getcwdb", "readlink", "read", "pread", "getloadavg", "times", "statvfs",
})  # fmt: skip
#: What differs between processes and threads.
_WORKERS: Final = frozenset({"getpid", "getppid", "get_ident", "get_native_id", "gettid"})
_DATES: Final = frozenset({"now", "utcnow", "today"})
_READERS: Final = frozenset({
    "read", "read1", "readall", "readinto", "readinto1", "readline", "readlines", "getvalue",
    "peek", "tell",
})  # fmt: skip
_RECEIVERS: Final = frozenset({
    "recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into",
})  # fmt: skip
_ASKERS: Final = frozenset({"get", "get_nowait", "qsize", "empty"})
#: By the module that has an object's class: what it is, methods that read it, and whether they
#: count where the user's own code calls them alone.
_OBJECTS: Final = {
    "_io": ("a file", _READERS, False),
    "_socket": ("a connection", _RECEIVERS, False),
    "socket": ("a connection", _RECEIVERS, False),
    "_queue": ("a queue", _ASKERS, False),
    "_thread": ("a lock", frozenset({"locked"}), True),
}
#: Names of all of them: most calls are of others.
READING: Final = frozenset.union(
    _CLOCKS["time"], _SYSTEM, _WORKERS, _DATES, *(names for _, names, _ in _OBJECTS.values()),
    {"open", "open_code", "input", "fromfile"},
)  # fmt: skip
#: Parts of the standard library that read files of programs, to show them or to run them.
_SHOWING: Final = (
    "importlib", "inspect", "linecache", "logging", "pkgutil", "runpy", "tokenize", "traceback",
    "warnings", "zipimport",
)  # fmt: skip


def read_outside(frame: types.FrameType, function: types.BuiltinFunctionType) -> str | None:
    """Return what a call of C code reads anew each time, for people, or None.

    Args:
        frame: whose code calls.
        function: what it calls.
    """
    name = function.__name__
    if name not in READING:
        return None
    found = _kind_of(function, name)
    if found is None or is_own_code(frame.f_code):
        return None
    text, is_for_the_user_alone = found
    if is_for_the_user_alone:
        is_library = is_foreign_code(frame.f_code) or "site-packages" in frame.f_code.co_filename
        return None if is_library else text
    return text if _is_for_the_user(frame) else None


def read_by(function: object) -> str | None:
    """Return what a function of C code reads anew each time, whoever calls it, or None."""
    if not isinstance(function, types.BuiltinFunctionType) or function.__name__ not in READING:
        return None
    found = _kind_of(function, function.__name__)
    return None if found is None else found[0]


def _kind_of(function: types.BuiltinFunctionType, name: str) -> tuple[str, bool] | None:
    """What the function reads, and whether that counts where the user's own code does so alone."""
    owner = function.__self__
    if isinstance(owner, types.ModuleType):
        module = owner.__name__
        if name in _CLOCKS.get(module, ()):
            return f"the clock ({module}.{name})", True
        if module in ("posix", "nt", "_thread") and name in _WORKERS:
            return f"the process or the thread ({name})", True
        if module in ("posix", "nt") and name in _SYSTEM:
            what = "the system's random numbers" if "random" in name else "the system"
            return f"{what} (os.{name})", False
        if module in ("_io", "io") and name in ("open", "open_code"):
            return "a file (open)", False
        if module == "builtins" and name == "input":
            return "the standard input (input)", False
        if module.partition(".")[0] == "numpy" and name == "fromfile":
            return "a file (numpy.fromfile)", False  # which C code opens
        return None
    if isinstance(owner, type):
        is_clock = _is_a_date(owner, name)
        return (f"the clock ({owner.__name__}.{name})", True) if is_clock else None
    what, names, is_for_the_user_alone = _OBJECTS.get(type(owner).__module__, ("", _DATES, False))
    if not what or name not in names:
        return None
    return f"{what} ({type(owner).__name__}.{name})", is_for_the_user_alone


def _is_a_date(owner: type, name: str) -> bool:
    """Whether it is a date's or a time's method that makes one of now."""
    return name in _DATES and any(base.__module__ == "datetime" for base in owner.__mro__)


def _is_for_the_user(frame: types.FrameType) -> bool:
    """Whether the user's code asked for it: directly, or through libraries that hand it on."""
    at: types.FrameType | None = frame
    while at is not None:
        code = at.f_code
        if is_own_code(code):
            return False
        name = at.f_globals.get("__name__")
        if isinstance(name, str) and name.partition(".")[0] in _SHOWING:
            return False
        if code.co_filename.startswith("<frozen importlib"):
            return False
        if not is_foreign_code(code):
            return True
        at = at.f_back
    return False
