"""Renderers of C and its relatives: `dialect` is shared, each target has a file."""
