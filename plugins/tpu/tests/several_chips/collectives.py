"""Run by test_collectives.py on several emulated chips: every collective, results as JSON per rank."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import accelhub

device = accelhub.device()
dist.init_process_group("tpu_dist")
rank, size = dist.get_rank(), dist.get_world_size()


def mine(length=2):
    """Values by which a rank is known: rank 0 has 0, 1; rank 1 has 10, 11."""
    return torch.arange(length, dtype=torch.float32, device=device) + 10 * rank


def gathered(tensor):
    outputs = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(outputs, tensor)
    return torch.cat(outputs)


def all_reduced(op):
    tensor = mine()
    dist.all_reduce(tensor, op)
    return tensor


def broadcast():
    tensor = mine()
    dist.broadcast(tensor, src=1)
    return tensor


def reduced():
    tensor = mine()
    dist.reduce(tensor, dst=0)
    return tensor if rank == 0 else None


def gathered_at_last():
    outputs = [torch.empty(2, device=device) for _ in range(size)] if rank == size - 1 else None
    dist.gather(mine(), outputs, dst=size - 1)
    return torch.cat(outputs) if outputs else None


def scattered():
    output = torch.empty(2, device=device)
    dist.scatter(output, [mine() + 100 * k for k in range(size)] if rank == 0 else None, src=0)
    return output


def reduce_scattered():
    output = torch.empty(1, device=device)
    dist.reduce_scatter_tensor(output, mine(size))
    return output


def reduce_scattered_lists():
    output = torch.empty(1, device=device)
    dist.reduce_scatter(output, list(mine(size).split(1)))
    return output


def all_to_all():
    outputs = [torch.empty(1, device=device) for _ in range(size)]
    dist.all_to_all(outputs, list(mine(size).split(1)))
    return torch.cat(outputs)


def all_to_all_single():
    output = torch.empty(size, device=device)
    dist.all_to_all_single(output, mine(size))
    return output


def ring():
    received = torch.empty(2, device=device)
    if rank % 2 == 0:
        dist.send(mine(), (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
    else:
        dist.recv(received, (rank - 1) % size)
        dist.send(mine(), (rank + 1) % size)
    return received


def subgroup():
    groups = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    tensor = mine()
    dist.all_reduce(tensor, group=groups[rank // 2])
    return tensor


def distributed_tensor():
    matrix = torch.arange(20, dtype=torch.float32).view(5, 4)  # 5 rows do not divide evenly
    mesh = init_device_mesh("tpu", (size,))
    sharded = distribute_tensor(matrix.to(device), mesh, [Shard(0)])
    return sharded.full_tensor().flatten()


def compiled_with_collectives():
    mesh = init_device_mesh("tpu", (size,))

    def function(x):
        doubled = all_reduce(x * 2, "sum", mesh)
        return all_gather_tensor(doubled + x, 0, mesh).sin()

    return accelhub.compile(function)(mine())


def objects():
    outputs = [None] * size
    dist.all_gather_object(outputs, {"rank": rank})
    return outputs


results = {
    "all_gather": gathered(mine()),
    "all_reduce_sum": all_reduced(dist.ReduceOp.SUM),
    "all_reduce_max": all_reduced(dist.ReduceOp.MAX),
    "all_reduce_bfloat16": gathered(mine().to(torch.bfloat16)).float(),
    "all_to_all": all_to_all(),
    "all_to_all_single": all_to_all_single(),
    "broadcast": broadcast(),
    "compiled": compiled_with_collectives(),
    "distributed_tensor": distributed_tensor(),
    "gather": gathered_at_last(),
    "objects": objects(),
    "reduce": reduced(),
    "reduce_scatter": reduce_scattered_lists(),
    "reduce_scatter_tensor": reduce_scattered(),
    "ring": ring(),
    "scatter": scattered(),
    "subgroup": subgroup(),
}
dist.barrier()
content = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in results.items()}
content |= {"backend": dist.get_backend(), "devices": accelhub.devices().platforms[0].chips}
Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(content))
dist.destroy_process_group()
