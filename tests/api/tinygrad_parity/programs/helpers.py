"""Flags, contexts, counters and helpers."""

import os

os.environ["MYFLAG"] = "5"
from tinygrad import Context, Device, GlobalCounters, Tensor
from tinygrad.helpers import (
    BEAM,
    DEBUG,
    ContextVar,
    Timing,
    all_same,
    ansilen,
    ansistrip,
    argfix,
    ceildiv,
    colored,
    dedup,
    flatten,
    fully_flatten,
    getenv,
    make_tuple,
    merge_dicts,
    partition,
    prod,
    round_up,
    tqdm,
    unwrap,
)

print(getenv("MYFLAG", 1), getenv("NOPE", 7), getenv("NOPES", "x"), bool(BEAM), DEBUG.value)
V = ContextVar("MYVAR", 3)
print(V.value)
with Context(DEBUG=0, MYVAR=9):
    print(V.value, DEBUG.value)
print(V.value)
print(
    prod((2, 3, 4)),
    argfix([1, 2]),
    argfix(1, 2),
    all_same([1, 1]),
    flatten([[1], [2, 3]]),
    dedup([1, 2, 1]),
    make_tuple(3, 2),
    round_up(5, 4),
    ceildiv(7, 2),
)
print(
    repr(colored("hi", "red")),
    ansilen(colored("hi", "red")),
    ansistrip(colored("hi", "blue")),
    partition([1, 2, 3], lambda x: x > 1),
    merge_dicts([{1: 2}, {3: 4}]),
    fully_flatten([1, [2, [3]]]),
)
with Timing("t: ", enabled=False):
    pass
GlobalCounters.reset()
(Tensor.ones(4).contiguous() + 1).realize()
print(GlobalCounters.kernel_count > 0, GlobalCounters.mem_used >= 0)
print(
    Device.DEFAULT in Device._devices if hasattr(Device, "_devices") else True,
    Device["CPU"] is Device["CPU"],
    Device.canonicalize("cpu"),
    Device.canonicalize(None) == Device.DEFAULT,
)
t = Tensor([1.0], device="CPU")
print(t.device, t.to("CPU").device, list(tqdm([1, 2], disable=True)))
x = unwrap(3)
print(x)
