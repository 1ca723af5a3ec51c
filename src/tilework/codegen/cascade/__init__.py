"""Kernels of several folds along one axis, run in phases over tiles of rows.

`find` says what a tile of rows keeps in memory, `phases` makes a small kernel of each such value,
`lower` plans the phases and puts them into one LINEAR.
"""
