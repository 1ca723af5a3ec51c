"""Renderers: LINEAR -> text that a toolchain compiles."""
