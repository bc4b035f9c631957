"""Token-weighted loss under FSDP2 with Ulysses sequence parallelism."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


@dataclass
class ParallelState:
    fsdp_mesh: DeviceMesh  # one flattened dimension, dp x sp
    dp_size: int
    ulysses_size: int

    @property
    def fsdp_size(self):
        return self.dp_size * self.ulysses_size


def parallelize(model, ps: ParallelState):
    for layer in model.layers:
        fully_shard(layer, mesh=ps.fsdp_mesh)
    fully_shard(model, mesh=ps.fsdp_mesh)


def count_tokens(micro_batches, ps: ParallelState):
    # labels: this sequence-parallel rank's slice
    n = sum((mb["labels"] != -100).sum() for mb in micro_batches)
    dist.all_reduce(n, group=ps.fsdp_mesh.get_group())
    return n


def train_step(model, micro_batches, optimizer, ps: ParallelState):
    length_in_batch = count_tokens(micro_batches, ps)
    for mb in micro_batches:
        logits = model(mb["input_ids"])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), mb["labels"].flatten(), reduction="sum")
        loss = loss / length_in_batch * ps.fsdp_size
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
