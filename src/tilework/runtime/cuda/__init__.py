"""Parts of the driver of NVIDIA GPUs: memory, arguments of launches, and recordings as graphs."""
