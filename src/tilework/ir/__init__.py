"""The intermediate representation: nodes, the op table, symbolic index arithmetic, digests."""

from tilework.ir import ops as ops  # the table first: the modules beside it import from it
