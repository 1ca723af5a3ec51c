"""One driver a file; they do not know each other."""
