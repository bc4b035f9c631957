"""Gradient accumulation with DDP, reducing the gradients once per step.

Source: training loop in the style of nanoGPT (from memory). DDP reduces in the backward of the
micro step whose forward saw require_backward_grad_sync set. If that is the first one, the others
add their local gradients to the averaged ones afterwards and the ranks step with different values.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def get_lr(it, config):
    if it < config.warmup_iters:
        return config.learning_rate * (it + 1) / config.warmup_iters
    return config.learning_rate


def train(model, get_batch, config, local_rank):
    ddp = dist.is_initialized()
    steps = config.gradient_accumulation_steps
    if ddp:
        assert steps % dist.get_world_size() == 0
        steps //= dist.get_world_size()
        model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)

    x, y = get_batch("train")
    for it in range(config.max_iters):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, config)

        for micro_step in range(steps):
            if ddp:
                model.require_backward_grad_sync = micro_step == 0  # BUG
            with torch.autocast("cuda", dtype=torch.bfloat16):
                _, loss = model(x, y)
                loss = loss / steps
            x, y = get_batch("train")
            loss.backward()

        if config.grad_clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        if it % config.log_interval == 0:
            lossf = loss.detach() * steps
            if ddp:
                dist.all_reduce(lossf, op=dist.ReduceOp.AVG)
            if local_rank == 0:
                print(f"iter {it}: loss {lossf.item():.4f}")
