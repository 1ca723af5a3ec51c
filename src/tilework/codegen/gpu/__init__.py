"""Code for machines whose tasks are blocks of threads that share a memory: GPUs.

`plan` adds the words that blocks need, `choose` picks a default plan, `check` proves one legal,
`apply` rewrites a kernel by it, `barriers` puts the waits in and proves that none is missing.
"""
