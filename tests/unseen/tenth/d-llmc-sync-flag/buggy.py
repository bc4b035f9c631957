"""GPT-2 training loop with gradient accumulation under DDP.

karpathy/llm.c d05e8480109c, train_gpt2.py
"""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, raw_optimizer, train_loader, args, ctx, device):
    ddp = int(os.environ.get("RANK", -1)) != -1
    ddp_world_size = dist.get_world_size() if ddp else 1
    tokens_per_fwdbwd = args.batch_size * args.sequence_length * ddp_world_size
    assert args.total_batch_size % tokens_per_fwdbwd == 0
    grad_accum_steps = args.total_batch_size // tokens_per_fwdbwd
    if ddp:
        model = DDP(model, device_ids=[int(os.environ["LOCAL_RANK"])])
    optimizer = raw_optimizer(model.parameters())

    for step in range(args.num_iterations + 1):
        model.train()
        # micro-batch loop where we do gradient accumulation to reach desired total batch size
        lossf = torch.zeros((), device=device)
        for micro_step in range(grad_accum_steps):
            x, y = train_loader.next_batch()
            x, y = x.to(device), y.to(device)
            # forward pass
            with ctx:
                _, loss = model(x, y, return_logits=False)
                loss = loss / grad_accum_steps
                lossf += loss.detach()
            # backward pass
            if ddp:
                # we want only the last micro-step to sync grads in a DDP model
                model.require_backward_grad_sync = (micro_step == grad_accum_steps - 1)  # BUG
            loss.backward()
        if ddp:
            dist.all_reduce(lossf, op=dist.ReduceOp.AVG)
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
