# thread: https://github.com/karpathy/build-nanogpt/pull/30
"""GPT-2 pre-training loop with gradient accumulation."""
import math
import os
import time

import torch
import torch.distributed as dist
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

max_lr, min_lr = 6e-4, 6e-5
warmup_steps, max_steps = 715, 19073
total_batch_size = 524288
B, T = 16, 1024


def get_lr(it):
    if it < warmup_steps:
        return max_lr * (it + 1) / warmup_steps
    if it > max_steps:
        return min_lr
    ratio = (it - warmup_steps) / (max_steps - warmup_steps)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (max_lr - min_lr)


def evaluate(raw_model, val_loader, device, ddp, steps=20):
    raw_model.eval()
    val_loader.reset()
    val_loss = torch.zeros((), device=device)
    with torch.no_grad():
        for _ in range(steps):
            x, y = val_loader.next_batch()
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                _, loss = raw_model(x.to(device), y.to(device))
            val_loss += loss.detach() / steps
    if ddp:
        dist.all_reduce(val_loss, op=dist.ReduceOp.AVG)
    raw_model.train()
    return val_loss.item()


def main(model_fn, loader_fn):
    ddp = int(os.environ.get("RANK", -1)) != -1
    if ddp:
        init_process_group(backend="nccl")
        ddp_rank = int(os.environ["RANK"])
        ddp_local_rank = int(os.environ["LOCAL_RANK"])
        ddp_world_size = int(os.environ["WORLD_SIZE"])
        device = f"cuda:{ddp_local_rank}"
        torch.cuda.set_device(device)
    else:
        ddp_rank, ddp_local_rank, ddp_world_size = 0, 0, 1
        device = "cuda" if torch.cuda.is_available() else "cpu"
    master_process = ddp_rank == 0

    torch.manual_seed(1337)
    assert total_batch_size % (B * T * ddp_world_size) == 0
    grad_accum_steps = total_batch_size // (B * T * ddp_world_size)
    train_loader = loader_fn(B, T, ddp_rank, ddp_world_size, split="train")
    val_loader = loader_fn(B, T, ddp_rank, ddp_world_size, split="val")

    torch.set_float32_matmul_precision("high")
    model = model_fn(vocab_size=50304).to(device)
    if ddp:
        model = DDP(model, device_ids=[ddp_local_rank])
    raw_model = model.module if ddp else model
    optimizer = torch.optim.AdamW(raw_model.parameters(), lr=max_lr, betas=(0.9, 0.95), weight_decay=0.1)

    for step in range(max_steps):
        t0 = time.time()
        if step % 250 == 0:
            val_loss = evaluate(raw_model, val_loader, device, ddp)
            if master_process:
                print(f"validation loss: {val_loss:.4f}")
        optimizer.zero_grad()
        loss_accum = torch.zeros((), device=device)
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
        lr = get_lr(step)
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        optimizer.step()
        torch.cuda.synchronize()
        if master_process:
            dt = time.time() - t0
            print(f"step {step:5d} | loss {loss_accum.item():.6f} | lr {lr:.4e} | norm {norm:.4f} | dt {dt*1000:.1f}ms")
    if ddp:
        destroy_process_group()
