"""Contractions by matrix instructions: of warp groups, fed by copies of boxes, and of single warps.

`operands` tells which factors a copy engine can move, `choose` picks tiles and depth by a cost
model, `lower` writes the statements of producers and consumers, `epilogue` what becomes of sums.
`warps` and `warps_lower` do the same for products of single warps, whose slots threads fill;
`products` asks which of the two a kernel would take.
"""
