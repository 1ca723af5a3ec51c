"""Foundations that every other layer stands on; the standard library alone."""
