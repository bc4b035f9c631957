# Right: the squares are summed over all ranks before the root; summed in place by a custom op of this file with mutates_args.
from torch.distributed.fsdp import fully_shard
import torch
import torch.distributed as dist


@torch.library.custom_op("mylib::all_reduce_", mutates_args=("x",))
def all_reduce_(x: torch.Tensor, name: str) -> None:
    dist.all_reduce(x, group=dist.distributed_c10d._resolve_process_group(name))


def clip(model, loader, optimizer, largest):
    fully_shard(model)
    group = dist.group.WORLD
    for batch in loader:
        model(batch).mean().backward()
        total = torch.zeros((), device="cuda")
        for p in model.parameters():
            total += p.grad.to_local().pow(2).sum()
        torch.ops.mylib.all_reduce_(total, group.group_name)
        norm = total.sqrt()
        for p in model.parameters():
            p.grad.mul_(torch.clamp(largest / norm, max=1.0))
        optimizer.step()
        optimizer.zero_grad()
