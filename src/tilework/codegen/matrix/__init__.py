"""Contractions by matrix instructions: of warp groups, fed by copies of boxes, and of single warps.

`operands` tells which factors a copy engine can move, `choose` picks tiles and depth by a cost
model, `lower` writes the statements of producers and consumers, `epilogue` what becomes of sums.
`warps` and `warps_lower` do the same for products of single warps, whose slots threads fill;
`products` asks which of the two a kernel would take.

`stream` finds cascades that one pass computes, `chain` products of what products give.  A `crew`
multiplies, of warp groups or of single warps; its `feed` brings the arrays (`group_feed`,
`warp_feed`), and what stands between products is the same for both (`stream_group`, `chain_group`).
"""
