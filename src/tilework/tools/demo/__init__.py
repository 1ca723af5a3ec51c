"""The demonstration: a real text recogniser on a real page, then a small network that learns."""
