"""Values over several devices become expressions of one device each, and copies between them.

`spec` is the algebra of boxes and layouts, `movement` what movement ops do to them, `propagate`
says in which layout each op works, `transfer` moves parts between devices, `allreduce` folds them,
and `lower` is the pass.
"""
