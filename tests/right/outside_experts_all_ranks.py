"""Expert parallel over all ranks: each rank has experts of its own, whose gradients are whole."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model, lr):
    experts = [b.moe.experts for b in model.blocks]
    fsdp = FSDP(model, ignored_modules=experts, use_orig_params=True)
    expert_params = [p for m in experts for p in m.parameters()]
    opt = torch.optim.AdamW(fsdp.parameters(), lr=lr)
    expert_opt = torch.optim.AdamW(expert_params, lr=lr)
    return fsdp, opt, expert_opt


def step(fsdp, opt, expert_opt, batch):
    fsdp(batch).mean().backward()
    opt.step()
    expert_opt.step()
