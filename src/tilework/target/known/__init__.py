"""Specs of known machines, built from their feature sets."""
