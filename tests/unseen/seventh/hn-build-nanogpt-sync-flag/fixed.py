"""GPT-2 training step with gradient accumulation under DDP.

Source: https://github.com/karpathy/build-nanogpt/pull/30
"""
import torch
import torch.distributed as dist


def train_step(model, raw_model, optimizer, train_loader, grad_accum_steps, device, ddp, lr):
    model.train()
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
    norm = torch.nn.utils.clip_grad_norm_(raw_model.parameters(), 1.0)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    optimizer.step()
    return loss_accum.item(), norm
