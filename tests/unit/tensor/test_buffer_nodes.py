"""Nodes of buffers that nobody has any more go, also in programs that realize nothing."""

from tilework import dtypes
from tilework.ir.node import sweep, table_size
from tilework.tensor.version import new_buffer_node


def test_buffers_that_come_and_go_do_not_fill_the_table() -> None:
    sweep(force=True)
    bound = 2 * table_size() + 60_000
    for _ in range(bound + 10_000):
        new_buffer_node("CPU", (1,), dtypes.float32)
    assert table_size() < bound
