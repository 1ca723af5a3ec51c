"""LOWERED -> LINEAR: loops, accumulators and the order of statements."""
