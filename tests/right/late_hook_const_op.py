"""What the hook reads is the same in every round, or the hook is gone before the next one."""
import torch
import torch.distributed as dist


def register(params):
    for p in params:
        op = dist.ReduceOp.AVG
        p.register_post_accumulate_grad_hook(lambda q: dist.all_reduce(q.grad, op=op))
