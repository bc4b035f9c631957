"""A script around FSDP: the wrapper gathers parameters and reduces gradients."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def main(model, loader, steps):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = FSDP(model.cuda(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step, batch in zip(range(steps), loader):
        logits = model(batch["input_ids"].cuda())
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].cuda().flatten())
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(step, shown.item())
    dist.destroy_process_group()
