"""What may be opened as a device: one short registration file per back end.

`registry.backends()` lists all of them without importing any; other packages add theirs in the
entry point group `tilework.backends`.  `contract` says what a back end is.
"""
