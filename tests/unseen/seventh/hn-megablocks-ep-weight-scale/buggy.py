"""Expert MLP with expert model parallelism over the data-parallel ranks.

Source: https://github.com/databricks/megablocks/pull/20
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class ExpertMLP(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        # with expert_model_parallelism every rank holds num_experts / world experts
        world = dist.get_world_size() if args.expert_model_parallelism else 1
        self.gradient_scale = 1.0 / world
        n = args.num_experts // world
        self.w1 = torch.nn.Parameter(torch.empty(n, args.hidden_size, args.ffn_size))
        self.w2 = torch.nn.Parameter(torch.empty(n, args.ffn_size, args.hidden_size))
        for w in (self.w1, self.w2):
            w.expert_model_parallel = args.expert_model_parallelism

    def forward(self, x):
        # [local experts, tokens of all ranks sent here by all-to-all, hidden]
        w1, w2 = self.w1, self.w2  # BUG
        return torch.bmm(F.gelu(torch.bmm(x, w1)), w2)


def reduce_grads(model):
    """The loss of a rank is the mean over its own tokens."""
    for p in model.parameters():
        if not getattr(p, "expert_model_parallel", False):
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
