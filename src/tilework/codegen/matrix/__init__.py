"""Contractions by matrix instructions whose operands a copy engine moves into rings of slots.

`operands` tells which factors a copy engine can move, `choose` picks tiles and depth by a cost
model, `lower` writes the statements of producers and consumers, `epilogue` what becomes of sums.
"""
