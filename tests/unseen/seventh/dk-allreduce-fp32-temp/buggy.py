"""Reduce the gradients of parameters that see a sequence shard on each TP rank."""
import torch
import torch.distributed as dist


def mark_sequence_parallel(module):
    for p in module.parameters():
        p.sequence_parallel = True


def build_block(block):
    """Everything outside the tensor-parallel linears runs on [s/tp, b, h]."""
    for m in (block.input_norm, block.post_attn_norm, block.router):
        mark_sequence_parallel(m)
    return block


@torch.no_grad()
def reduce_sequence_parallel_grads(model, tp_group, reduce_in_fp32=True):
    if dist.get_world_size(tp_group) == 1:
        return
    for p in model.parameters():
        if p.grad is None or not getattr(p, "sequence_parallel", False):
            continue
        if reduce_in_fp32:
            dist.all_reduce(p.grad.to(torch.float32), group=tp_group)  # BUG
        else:
            dist.all_reduce(p.grad, group=tp_group)


def optimizer_step(model, optimizer, tp_group, dp_group):
    reduce_sequence_parallel_grads(model, tp_group)
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    optimizer.step()
    optimizer.zero_grad()
