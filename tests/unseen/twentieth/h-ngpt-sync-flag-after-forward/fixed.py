# build-nanogpt, pull 30: DDP reads require_backward_grad_sync in forward as well (it prepares the reducer there), so
# the flag has to be set before the forward pass of the microbatch whose backward is to reduce.
"""Training loop with gradient accumulation under DDP."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(raw_model, train_loader, optimizer, max_steps, grad_accum_steps, ddp_local_rank):
    device = f"cuda:{ddp_local_rank}"
    model = DDP(raw_model.to(device), device_ids=[ddp_local_rank])
    for step in range(max_steps):
        model.train()
        optimizer.zero_grad()
        loss_accum = torch.zeros((), device=device)
        for micro_step in range(grad_accum_steps):
            x, y = train_loader.next_batch()
            x, y = x.to(device), y.to(device)
            model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                logits, loss = model(x, y)
            loss = loss / grad_accum_steps
            loss_accum += loss.detach()
            loss.backward()
        dist.all_reduce(loss_accum, op=dist.ReduceOp.AVG)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step:5d} | loss: {loss_accum.item():.6f}")
