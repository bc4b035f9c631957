"""Megatron pretrain script: loss function, report over dp and cp, broadcast of the report from the last stage."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def loss_func(loss_mask, output):
    losses = output.float().view(-1)
    mask = loss_mask.view(-1).float()
    cp = mpu.get_context_parallel_world_size()
    stats = torch.stack([(losses * mask).sum(), mask.sum()])
    if cp > 1:
        both = stats.clone()
        both[0] = both[0].detach()
        total = stats[1].clone()
        dist.all_reduce(total, group=mpu.get_context_parallel_group())
        loss = stats[0] / total * cp
    else:
        loss = stats[0] / stats[1]
    report = stats.detach().clone()
    dist.all_reduce(report, group=mpu.get_data_parallel_group(with_context_parallel=True))
    return loss, {"lm loss": report[0] / report[1]}


def broadcast_report(value):
    if value is None:
        value = torch.zeros((), device="cuda")
    src = mpu.get_pipeline_model_parallel_last_rank()
    dist.broadcast(value, src=src, group=mpu.get_pipeline_model_parallel_group())
    return value


def evaluate(forward_only, iters):
    total, n = None, 0
    for _ in range(iters):
        reports = forward_only()
        if mpu.is_pipeline_last_stage():
            here = torch.stack([r["lm loss"] for r in reports]).sum()
            total = here if total is None else total + here
            n += len(reports)
    value = total / n if mpu.is_pipeline_last_stage() else None
    return broadcast_report(value).item()
