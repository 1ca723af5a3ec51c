"""Layers: objects that hold parameters and map tensors to tensors."""
