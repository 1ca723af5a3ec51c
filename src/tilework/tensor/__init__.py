"""Tensors: versions and storages, families of methods, differentiation."""
