"""Ways in for programs that were not written with the Tensor API."""
