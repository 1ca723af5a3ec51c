"""Which objects would be gone already, if they were not written down here.

Whoever notes what a program reads keeps it alive by that, and a program may behave otherwise with
objects that live longer: a tensor that somebody still sees is computed, one that nobody sees is
not.  What only the notes refer to was local to functions that have returned: it can be let go.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable


def held_here_alone(references: Iterable[object]) -> set[int]:
    """Return the identities of objects to which nothing refers besides the given references.

    Args:
        references: the objects to which the caller's structures refer, each as often as they do.
            It must be a generator: a list of them would be references too.

    Example:
        >>> notes, shared = [[1], [2]], [3]
        >>> notes.append(shared)
        >>> alone = held_here_alone(note for note in notes)
        >>> [id(note) in alone for note in notes]
        [True, True, False]
    """
    objects: dict[int, object] = {}
    counts: dict[int, int] = {}
    for reference in references:
        number = id(reference)
        objects[number] = reference
        counts[number] = counts.get(number, 0) + 1
    reference = None
    # What counting itself adds is measured with an object of which all references are known.
    probe = object()
    objects[id(probe)] = probe
    counts[id(probe)] = 1  # its name
    # Names of a comprehension's own loop would be references; looked up, all are counted alike.
    found = [(number, sys.getrefcount(objects[number])) for number in objects]
    added = found[-1][1] - 1
    return {number for number, count in found[:-1] if count - added == counts[number]}
