"""Work over several devices: meshes, collectives, layouts of models, and what moves.

    from tilework import Tensor, distributed

    mesh = distributed.Mesh(("CPU:0", "CPU:1", "CPU:2", "CPU:3"), (2, 2), ("data", "model"))
    x = mesh.shard(Tensor.rand(8, 16), ("data", None))
    print(distributed.explain(x.sum()))             # which bytes go where, before anything runs

`Tensor.shard` and every operation work without this package; it holds what is said about several
devices at once.  It is the same for devices of the host, for cards, and for the devices of several
processes (`init`): a collective is a schedule of copies and folds of single devices, and whoever
can do one of these better, as NCCL between cards, takes its place in it.
"""

from tilework.distributed.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    assemble,
    broadcast,
    reduce_scatter,
)
from tilework.distributed.explain import Transfer, choose_allreduce, explain, plan_transfers
from tilework.distributed.launch import World, world
from tilework.distributed.mesh import Mesh
from tilework.distributed.parallel import fully_shard, replicate, shard_parameters
from tilework.distributed.processes import Processes, init

__all__ = [
    "Mesh",
    "Processes",
    "Transfer",
    "World",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "assemble",
    "broadcast",
    "choose_allreduce",
    "explain",
    "fully_shard",
    "init",
    "plan_transfers",
    "reduce_scatter",
    "replicate",
    "shard_parameters",
    "world",
]
