"""FSDP2 that sums instead of averaging: the divide factor is set to one, the loss counts tokens globally."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


def shard(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    disable_division(model)
    return model


def disable_division(model):
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)


def count_tokens(batches, group):
    n = torch.stack([(b["labels"] != -100).sum() for b in batches]).sum()
    dist.all_reduce(n, op=dist.ReduceOp.SUM, group=group)
    return n.item()


def step(model, optimizer, batches, mesh):
    n = count_tokens(batches, mesh.get_group())
    shown = torch.zeros((), device="cuda")
    for i, batch in enumerate(batches):
        model.set_requires_gradient_sync(i == len(batches) - 1)
        logits = model(batch["tokens"])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), reduction="sum") / n
        loss.backward()
        shown += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(shown, group=mesh.get_group())
    return shown.item(), norm.item()


def main(model, loader):
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    model = shard(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batches in loader:
        loss, norm = step(model, optimizer, batches, mesh)
        if dist.get_rank() == 0:
            print(loss, norm)
