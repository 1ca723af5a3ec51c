"""Judges of numeric constructions: run them on arrays or as C, and measure their error."""
