"""Cut a batch into the load-balanced slices of a context-parallel rank."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def build_mesh(dp, cp, tp):
    # tensor-parallel neighbours are adjacent ranks
    return init_device_mesh("cuda", (dp, cp, tp), mesh_dim_names=("dp", "cp", "tp"))


def get_batch_on_this_cp_rank(batch, mesh):
    cp_group = mesh["cp"].get_group()
    cp_size = dist.get_world_size(cp_group)
    if cp_size == 1:
        return batch
    cp_rank = dist.get_rank(cp_group)
    out = {}
    for key, value in batch.items():
        chunks = value.chunk(2 * cp_size, dim=1)
        out[key] = torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=1)
    return out


def train_step(model, batch, mesh, loss_fn, optimizer):
    # every rank of one dp index loads the same whole sequences
    local = get_batch_on_this_cp_rank(batch, mesh)
    logits = model(local["input_ids"], position_ids=local["position_ids"])
    loss = loss_fn(logits, local["labels"])
    loss.backward()
    for p in model.parameters():
        for axis in ("cp", "dp"):
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=mesh[axis].get_group())
    optimizer.step()
    optimizer.zero_grad()
