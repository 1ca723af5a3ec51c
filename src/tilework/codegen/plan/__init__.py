"""Tile plans: how the ranges of a kernel are split, mapped to units and staged in memories.

`plan` has the words, `choose` picks a plan by the cost model in `cost`, `contraction` finds the m,
n and k of a sum of products, `check` proves a plan legal, `apply` rewrites the kernel by it.
"""
