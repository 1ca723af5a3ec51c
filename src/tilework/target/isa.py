"""The note by which object code tells which instruction set and features it needs.

Every object that a toolchain makes holds a section `.note.tilework`.  A loader compares it with
the processor before the code runs, so an object from a cache or an export that was made on a
newer machine is refused instead of crashing.
"""

from __future__ import annotations

from typing import Final

from tilework.base.errors import ModelFileError
from tilework.base.records import dataclass

NOTE_SECTION: Final = ".note.tilework"
_MAGIC: Final = "tilework-isa-1"


@dataclass(frozen=True, slots=True)
class IsaNote:
    """What a piece of object code needs of the processor."""

    isa: str
    features: frozenset[str]

    def encode(self) -> str:
        """Return the text of the note section, printable ASCII without quotes."""
        return f"{_MAGIC};{self.isa};{','.join(sorted(self.features))};"


def decode_note(data: bytes) -> IsaNote:
    """Read a note section.

    Raises: ModelFileError when it is not one of ours.
    """
    parts = bytes(data).rstrip(b"\0").decode("ascii", "replace").split(";")
    if len(parts) != 4 or parts[0] != _MAGIC or parts[3]:
        raise ModelFileError(
            f"object code: section {NOTE_SECTION} is malformed",
            got=repr(bytes(data[:80])),
            expected=f"{_MAGIC};<instruction set>;<features>;",
        )
    return IsaNote(parts[1], frozenset(name for name in parts[2].split(",") if name))
