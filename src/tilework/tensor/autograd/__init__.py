"""Reverse-mode differentiation over the versions that tensors were computed from."""
