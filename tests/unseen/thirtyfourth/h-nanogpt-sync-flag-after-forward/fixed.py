# karpathy/build-nanogpt, pull request 30 - https://github.com/karpathy/build-nanogpt/pull/30 (read)
# DDP prepares its reducer in forward() from require_backward_grad_sync. Setting the flag between
# forward and backward syncs on the wrong micro step, so the optimizer sees rank-local gradients.
"""Gradient accumulation loop of a single-file GPT-2 trainer."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, train_loader, optimizer, ddp_local_rank, grad_accum_steps, max_steps, device):
    model = DDP(model, device_ids=[ddp_local_rank])
    for step in range(max_steps):
        model.train()
        optimizer.zero_grad()
        loss_accum = 0.0
        for micro_step in range(grad_accum_steps):
            x, y = train_loader.next_batch()
            x, y = x.to(device), y.to(device)
            model.require_backward_grad_sync = (micro_step == grad_accum_steps - 1)
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                logits, loss = model(x, y)
            # the loss is a mean over the micro batch
            loss = loss / grad_accum_steps
            loss_accum += loss.detach()
            loss.backward()
        dist.all_reduce(loss_accum, op=dist.ReduceOp.AVG)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
