"""Train a GPT with gradient accumulation under DDP."""
# karpathy/build-nanogpt PR 30: DDP prepares the reduction in forward, so the flag has to be set before it.
import os

import torch
import torch.distributed as dist
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, train_loader, optimizer, total_batch_size, B, T, max_steps):
    ddp = int(os.environ.get("RANK", -1)) != -1
    if ddp:
        init_process_group(backend="nccl")
        ddp_local_rank = int(os.environ["LOCAL_RANK"])
        ddp_world_size = int(os.environ["WORLD_SIZE"])
        device = f"cuda:{ddp_local_rank}"
    else:
        ddp_local_rank, ddp_world_size, device = 0, 1, "cuda"
    grad_accum_steps = total_batch_size // (B * T * ddp_world_size)
    model.to(device)
    if ddp:
        model = DDP(model, device_ids=[ddp_local_rank])

    for step in range(max_steps):
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
        optimizer.step()
        print(f"step {step} | loss: {loss_accum.item():.6f} | norm: {norm:.4f}")
    if ddp:
        destroy_process_group()
