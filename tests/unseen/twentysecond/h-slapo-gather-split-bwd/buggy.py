"""All-gather of the sequence in front of a sharded linear."""
import torch
import torch.distributed as dist


class _AllGatherForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group, ctx.n = dim, group, x.size(dim)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        parts = [p.contiguous() for p in grad_output.split(ctx.n, dim=ctx.dim)]
        grad = parts[dist.get_rank(ctx.group)]  # BUG: each rank only has the part of its own heads
        return grad, None, None


class FusedQKV(torch.nn.Module):
    def __init__(self, weight_shard, tp_group):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [3 * hidden/tp, hidden]
        self.weight.tensor_model_parallel = True
        self.tp_group = tp_group

    def forward(self, x):
        # x: [batch, seq/tp, hidden]
        x = _AllGatherForward.apply(x, 1, self.tp_group)
        return torch.nn.functional.linear(x, self.weight)
