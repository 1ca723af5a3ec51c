"""The base of the typed attributes of ops; apart from nodes, since nodes may be compiled ahead."""

from __future__ import annotations


class Attrs:
    """Base of the typed attributes of ops: frozen dataclasses whose fields are all hashable.

    Literals are stored as bits, never as Python numbers: `1 == True == 1.0` and `0.0 == -0.0` hash
    alike, and `nan != nan`.
    """

    __slots__ = ()
