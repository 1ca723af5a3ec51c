"""Kits for authors of backends and for our own tests; no product module imports them."""
