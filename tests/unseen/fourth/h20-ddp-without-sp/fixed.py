"""Wrapping with a mesh of data and sequence dims (VeOmni style)."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP


class ParallelState:
    def __init__(self, dp_size, ulysses_size):
        self.dp_size, self.ulysses_size = dp_size, ulysses_size
        self.device_mesh = init_device_mesh("cuda", (dp_size, ulysses_size), mesh_dim_names=("dp", "ulysses"))
        self.device_mesh["dp", "ulysses"]._flatten(mesh_dim_name="dp_sp")

    @property
    def dp_group(self):
        return self.device_mesh.get_group("dp")

    @property
    def sp_group(self):
        return self.device_mesh.get_group("ulysses")

    @property
    def fsdp_group(self):
        return self.device_mesh["dp_sp"].get_group()


def build_parallelize_model(model, state):
    return DDP(model, device_ids=[torch.cuda.current_device()], process_group=state.fsdp_group)


def split_batch(batch, state):
    """Each rank of the sequence group takes its part of the sequence."""
    rank = dist.get_rank(state.sp_group)
    return {k: v.chunk(state.ulysses_size, dim=1)[rank].contiguous() for k, v in batch.items()}


def train(model, loader, state, lr, steps):
    model = build_parallelize_model(model.cuda(), state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step, batch in zip(range(steps), loader):
        batch = split_batch(batch, state)
        logits = model(batch["input_ids"], batch["position_ids"])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        count = (batch["labels"] != -100).sum()
        dist.all_reduce(count, group=state.fsdp_group)
        loss = loss / count * dist.get_world_size(state.fsdp_group)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
