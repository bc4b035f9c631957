"""Training step with gradient accumulation under DDP.

Source: https://github.com/karpathy/build-nanogpt/pull/30
Wrong: DDP reads require_backward_grad_sync in forward, where it arms the reducer; set between
forward and backward the flag acts one micro-step late, and only the first micro-step is reduced.
Repair: set it before the forward pass.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def build(model, ddp, local_rank):
    if ddp:
        model = DDP(model, device_ids=[local_rank])
    return model


def train_step(model, train_loader, optimizer, get_lr, step, grad_accum_steps, ddp, device):
    model.train()
    optimizer.zero_grad()
    loss_accum = 0.0
    for micro_step in range(grad_accum_steps):
        x, y = train_loader.next_batch()
        x, y = x.to(device), y.to(device)
        if ddp:
            model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            logits, loss = model(x, y)
        loss = loss / grad_accum_steps
        loss_accum += loss.detach()
        loss.backward()
    if ddp:
        dist.all_reduce(loss_accum, op=dist.ReduceOp.AVG)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)
    optimizer.step()
    return loss_accum, norm
