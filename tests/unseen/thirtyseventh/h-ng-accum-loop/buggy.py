# thread: https://github.com/karpathy/build-nanogpt/pull/30
"""GPT pretraining with gradient accumulation under DistributedDataParallel."""
import math
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def get_lr(step, max_lr, min_lr, warmup, max_steps):
    if step < warmup:
        return max_lr * (step + 1) / warmup
    if step > max_steps:
        return min_lr
    ratio = (step - warmup) / (max_steps - warmup)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (max_lr - min_lr)


class TokenLoader:
    def __init__(self, tokens, B, T, rank, world):
        self.tokens, self.B, self.T = tokens, B, T
        self.rank, self.world = rank, world
        self.position = B * T * rank

    def next_batch(self):
        B, T = self.B, self.T
        buf = self.tokens[self.position : self.position + B * T + 1]
        self.position += B * T * self.world
        if self.position + B * T * (self.world - self.rank) + 1 > len(self.tokens):
            self.position = B * T * self.rank
        return buf[:-1].view(B, T), buf[1:].view(B, T)


def configure(model, weight_decay, lr):
    params = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, fused=True)


def main(build_model, tokens, total_batch_size=524288, B=16, T=1024, max_steps=19073):
    dist.init_process_group(backend="nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    torch.manual_seed(1337)
    assert total_batch_size % (B * T * world) == 0
    grad_accum_steps = total_batch_size // (B * T * world)

    model = DDP(build_model().to(device), device_ids=[torch.device(device).index])
    optimizer = configure(model, weight_decay=0.1, lr=6e-4)
    loader = TokenLoader(tokens, B, T, rank, world)

    for step in range(max_steps):
        model.train()
        optimizer.zero_grad()
        loss_accum = torch.zeros((), device=device)
        for micro_step in range(grad_accum_steps):
            x, y = loader.next_batch()
            x, y = x.to(device), y.to(device)
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                logits, loss = model(x, y)
            loss = loss / grad_accum_steps
            loss_accum += loss.detach()
            model.require_backward_grad_sync = micro_step == grad_accum_steps - 1  # BUG
            loss.backward()
        dist.all_reduce(loss_accum, op=dist.ReduceOp.AVG)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = get_lr(step, 6e-4, 6e-5, 715, max_steps)
        optimizer.step()
        if rank == 0:
            print(f"step {step} | loss {loss_accum.item():.6f} | norm {norm:.4f}")
    dist.destroy_process_group()
