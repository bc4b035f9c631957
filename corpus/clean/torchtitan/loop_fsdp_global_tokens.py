"""A loss that is a sum, divided by the number of tokens of all ranks; the mean that the sharded gradients take is undone by the world size."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def apply_fsdp(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.layers.values():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def train(model, loader, optimizer, scheduler, args):
    world_size = dist.get_world_size()
    mesh = init_device_mesh("cuda", (world_size,), mesh_dim_names=("dp",))
    model = apply_fsdp(model, mesh)
    running_loss = torch.zeros((), device="cuda")
    num_tokens = torch.zeros((), device="cuda")
    for index, batch in enumerate(loader):
        last = (index + 1) % args.accumulate == 0
        model.set_requires_gradient_sync(last)
        labels = batch["labels"].cuda()
        current = (labels != -100).sum()
        num_tokens += current
        logits = model(batch["tokens"].cuda())
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum")
        running_loss += loss.detach()
        loss.backward()
        if not last:
            continue
        dist.all_reduce(num_tokens)
        dist.all_reduce(running_loss)
        # Gradients are the mean over the ranks of sums over tokens.
        scaler = world_size / num_tokens
        for param in model.parameters():
            if param.grad is not None:
                param.grad *= scaler
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=args.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        norm = grad_norm.full_tensor().item()
        if dist.get_rank() == 0:
            print(f"loss {(running_loss / num_tokens).item():.4f} norm {norm:.3f}")
        running_loss.zero_()
        num_tokens.zero_()
