"""Every exception that tilework raises on purpose.

    TileworkError
    |-- UserError            ShapeError(ValueError) DTypeError(TypeError) IndexingError(IndexError)
    |                        SettingsError(ValueError) ModelFileError(ValueError)
    |                        AliasError(ValueError) BoundsError(IndexError) PlanError(ValueError)
    |                        PermissionDeniedError(PermissionError) FileAccessError(OSError)
    |                        MissingFileError(FileNotFoundError) ScalarError(TypeError)
    |                        CaptureError(RuntimeError) StaleHandleError StaleOutputError
    |-- UnsupportedError     RenderError UnsupportedDeviceError
    |-- ToolchainError       CompileError
    |-- DeviceError          DeviceUnavailableError OutOfMemoryError(MemoryError) MapError
    |                        DeviceTimeoutError(TimeoutError) DeviceFaultError DeviceLostError
    |                        ProtocolError FirmwareError RollbackError
    `-- InternalError        VerifyError ScheduleCycleError RewriteLoopError

Each is raised as `SomeError("op: what is wrong", got=..., expected=..., try_=...)`.  The first
line of the message names the operation and the fault in the user's words; the three details
follow, one a line, each only if it is known.  Classes that carry more take it by keyword and
keep it as an attribute.  All extra arguments are optional, so that an error can travel from a
compile worker to its parent.
"""

from collections.abc import Sequence
from typing import TypedDict, Unpack

REPORT_HINT = (
    "this is a fault in tilework, not in your program; please report it with this message"
    " and the output of `tilework doctor`"
)


class Details(TypedDict, total=False):
    """What every error may carry; see `TileworkError`."""

    got: object
    expected: object
    try_: str | None
    created_at: str | None


def _with_got(details: Details, got: object) -> Details:
    """Show `got` unless the caller shows something else."""
    if details.get("got") is None:
        details["got"] = got
    return details


def _with_hint(details: Details) -> Details:
    """Say what to attach to a report, unless the caller says something else."""
    details.setdefault("try_", REPORT_HINT)
    return details


class TileworkError(Exception):
    """The root of the tree.

    Args:
        message: `<op>: <what is wrong>`, one line, no full stop.
        got: the offending value, with the names of what was measured.
        expected: what would have been accepted.
        try_: what the user can do next.
        created_at: `file:line` where the operation was written, if it failed later than that.
    """

    def __init__(
        self,
        message: str = "",
        *,
        got: object = None,
        expected: object = None,
        try_: str | None = None,
        created_at: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.got = got
        self.expected = expected
        self.try_ = try_
        self.created_at = created_at

    def __str__(self) -> str:
        """Render the first line and each known detail below it."""
        details = (
            ("got", self.got),
            ("expected", self.expected),
            ("try", self.try_),
            ("created at", self.created_at),
        )
        lines = [self.message]
        lines += [f"  {name}: {value}" for name, value in details if value is not None]
        return "\n".join(lines)


# --- what a user can cause -------------------------------------------------------------------


class UserError(TileworkError):
    """The call, the file or the setting is wrong; the message says how to mend it."""


class ShapeError(UserError, ValueError):
    """Shapes, axes or sizes do not fit the operation."""


class ScalarError(ShapeError, TypeError):
    """A tensor without axes is used as a sequence."""


class DTypeError(UserError, TypeError):
    """An operand's dtype, or its Python type, does not fit the operation."""


class IndexingError(UserError, IndexError):
    """An index expression is malformed or reaches outside the axis."""


class SettingsError(UserError, ValueError):
    """A setting has a value that it cannot take, or a name that does not exist."""


class ModelFileError(UserError, ValueError):
    """A file (model, weights, export, object code) is malformed or contradicts itself."""


class AliasError(UserError, ValueError):
    """Two arguments share memory in a way that the call does not allow."""


class BoundsError(UserError, IndexError):
    """An address or a range lies outside the memory that it refers to."""


class PlanError(UserError, ValueError):
    """A tile plan does not fit its kernel or the target."""


class PermissionDeniedError(UserError, PermissionError):
    """The operating system, a peer or a manifest refuses the access."""


class FileAccessError(UserError, OSError):
    """A file cannot be read or written: it is a folder, the disk is full, or the like."""


class MissingFileError(UserError, FileNotFoundError):
    """There is no such file or folder."""


class CaptureError(UserError, RuntimeError):
    """A replay's call differs from its capture, or the function cannot be captured.

    Args:
        message: see `TileworkError`.
        field: the part of the signature, or the source line, that is at fault.
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.field = field


class StaleHandleError(UserError):
    """The handle belongs to an earlier generation of its device, session or pool."""


class StaleOutputError(UserError):
    """The result was superseded in its ring.

    Args:
        message: see `TileworkError`.
        age: how many results were written since.
    """

    def __init__(
        self,
        message: str = "",
        *,
        age: int | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.age = age


# --- what this target cannot do ----------------------------------------------------------------


class UnsupportedError(TileworkError):
    """This target, file format or build cannot do what was asked."""


class RenderError(UnsupportedError):
    """A renderer has no text for a node.

    Args:
        message: see `TileworkError`.
        node: the node, printed.
    """

    def __init__(
        self,
        message: str = "",
        *,
        node: object = None,
        **details: Unpack[Details],
    ) -> None:
        # The text, not the node: an error must not keep a graph alive, nor carry it elsewhere.
        self.node = None if node is None else str(node)
        super().__init__(message, **_with_got(details, self.node))


class UnsupportedDeviceError(UnsupportedError):
    """The device exists but is not in the table of known ones.

    Args:
        message: see `TileworkError`.
        row: the row that was looked for, for example a vendor and a device number.
    """

    def __init__(
        self,
        message: str = "",
        *,
        row: object = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **_with_got(details, row))
        self.row = row


# --- outside compilers ---------------------------------------------------------------------------


class ToolchainError(TileworkError):
    """An outside compiler is missing or failed.

    Args:
        message: see `TileworkError`.
        command: the argument list that was run.
        source_path: where the source was left for inspection.
        log: what the compiler printed.
    """

    def __init__(
        self,
        message: str = "",
        *,
        command: Sequence[str] | None = None,
        source_path: str | None = None,
        log: str | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.command = None if command is None else tuple(command)
        self.source_path = source_path
        self.log = log

    def __str__(self) -> str:
        """Add the command, the source and the log to the usual lines."""
        lines = [super().__str__()]
        if self.command is not None:
            lines.append(f"  command: {' '.join(self.command)}")
        if self.source_path is not None:
            lines.append(f"  source: {self.source_path}")
        if self.log:
            lines.append("  log:")
            lines += [f"    {line}" for line in self.log.rstrip().splitlines()]
        return "\n".join(lines)


class CompileError(ToolchainError):
    """The compiler ran and rejected the source."""


# --- devices -------------------------------------------------------------------------------------


class DeviceError(TileworkError):
    """A device refused, failed or vanished."""


class DeviceUnavailableError(DeviceError):
    """The device cannot be opened.

    Args:
        message: see `TileworkError`.
        reason: why, and which extra or driver is missing.
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: str | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **_with_got(details, reason))
        self.reason = message if reason is None else reason


class OutOfMemoryError(DeviceError, MemoryError):
    """A pool has no room.

    Args:
        message: see `TileworkError`.
        pool: the pool that is full.
    """

    def __init__(
        self,
        message: str = "",
        *,
        pool: str | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.pool = pool


class MapError(DeviceError):
    """Memory could not be mapped or unmapped."""


class DeviceTimeoutError(DeviceError, TimeoutError):
    """A wait passed its deadline or saw no progress for too long.

    Args:
        message: see `TileworkError`.
        waited: seconds since the wait began.
        last_progress: seconds since the device last moved.
    """

    def __init__(
        self,
        message: str = "",
        *,
        waited: float | None = None,
        last_progress: float | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.waited = waited
        self.last_progress = last_progress


class DeviceFaultError(DeviceError):
    """The device reports a fault of a program.

    Args:
        message: see `TileworkError`.
        kind: what went wrong, for example "index out of range" or "page fault".
        address: where, if the device says so.
    """

    def __init__(
        self,
        message: str = "",
        *,
        kind: str | None = None,
        address: int | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.kind = kind
        self.address = address


class DeviceLostError(DeviceError):
    """The device is gone or must be reset; every handle of it is stale."""


class ProtocolError(DeviceError):
    """A peer or a device sent something that its protocol does not allow.

    Args:
        message: see `TileworkError`.
        field: the field at fault.
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.field = field


class FirmwareError(DeviceError):
    """Firmware answered with an error.

    Args:
        message: see `TileworkError`.
        code: the status number.
        name: its name, if known.
        class_: the kind of command that failed.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        name: str | None = None,
        class_: str | None = None,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.code = code
        self.name = name
        self.class_ = class_


class RollbackError(DeviceError):
    """An undo failed too while a failure was being unwound; the first error is the cause.

    Args:
        message: see `TileworkError`.
        failures: `(name of the resource, error)` of each undo that failed, in undo order.
    """

    def __init__(
        self,
        message: str = "",
        *,
        failures: Sequence[tuple[str, BaseException]] = (),
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.failures = tuple(failures)


# --- our own faults ------------------------------------------------------------------------------


class InternalError(TileworkError):
    """An invariant of tilework is broken: our fault, and the message says what to attach."""

    def __init__(self, message: str = "", **details: Unpack[Details]) -> None:
        super().__init__(message, **_with_hint(details))


class VerifyError(InternalError):
    """A graph breaks a rule of its stage.

    Args:
        message: see `TileworkError`.
        node: the node at fault, printed.
    """

    def __init__(
        self,
        message: str = "",
        *,
        node: object = None,
        **details: Unpack[Details],
    ) -> None:
        # The text, not the node: an error must not keep a graph alive, nor carry it elsewhere.
        self.node = None if node is None else str(node)
        super().__init__(message, **_with_got(details, self.node))


class ScheduleCycleError(InternalError):
    """Kernels wait for each other in a circle.

    Args:
        message: see `TileworkError`.
        path: the names along the circle.
    """

    def __init__(
        self,
        message: str = "",
        *,
        path: Sequence[str] = (),
        **details: Unpack[Details],
    ) -> None:
        circle = " -> ".join(path) if path else None
        super().__init__(message, **_with_got(details, circle))
        self.path = tuple(path)


class RewriteLoopError(InternalError):
    """Rewrite rules undo each other; the fuel of the driver ran out.

    Args:
        message: see `TileworkError`.
        rules: names of the rules that fired last.
    """

    def __init__(
        self,
        message: str = "",
        *,
        rules: Sequence[str] = (),
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.rules = tuple(rules)


class TileworkWarning(UserWarning):
    """Something is probably not what the user meant, but work goes on."""
