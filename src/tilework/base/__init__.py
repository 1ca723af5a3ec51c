"""Foundations that every other layer stands on; the standard library alone."""

from time import time_ns

#: When the first module below this package was asked for.  Sources that have changed since may be
#: others than those that this process runs.
LOADED_AT_NS = time_ns()
