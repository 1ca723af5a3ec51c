"""What `from tinygrad.llm.gguf import ...` gives."""

from __future__ import annotations

from tilework.nn.state import gguf_load

__all__ = ["gguf_load"]
