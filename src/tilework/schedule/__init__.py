"""From TENSOR graphs to calls of kernels: where does each value live, and in which order?

`call.transform_to_call` separates structure from buffers, `pipeline.create_schedule` cuts the
structure into kernels, orders them and plans their memory.
"""
