"""Integers with proven bounds: index arithmetic that simplifies as it is built.

`bounds` proves ranges of values, `simplify` builds sums, products, quotients and conditions in a
normal form, `dims` does arithmetic on sizes that may be numbers or nodes.
"""
