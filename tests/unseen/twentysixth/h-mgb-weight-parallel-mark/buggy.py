# megablocks 21c8602
"""Expert MLP whose weights are sharded over a weight-parallel group."""
import torch
import torch.distributed as dist
from megablocks.layers import mpu


class GatherWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, group):
        ctx.group = group
        out = torch.empty(w.shape[0] * dist.get_world_size(group), *w.shape[1:], device=w.device, dtype=w.dtype)
        dist.all_gather_into_tensor(out, w.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        n = dist.get_world_size(ctx.group)
        dw = torch.empty(grad.shape[0] // n, *grad.shape[1:], device=grad.device, dtype=grad.dtype)
        dist.reduce_scatter_tensor(dw, grad.contiguous(), group=ctx.group)
        return dw, None


class WeightParallelMLP(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        self.group = args.weight_parallel_group  # the data-parallel group
        rows = args.ffn_hidden_size // mpu.get_weight_parallel_world_size(args)
        self.w1 = torch.nn.Parameter(torch.empty(rows, args.hidden_size))
        self.w2 = torch.nn.Parameter(torch.empty(rows, args.hidden_size))
        should_set_attribute = args.moe_expert_model_parallelism  # BUG: weight-parallel shards are local too
        mpu.set_expert_model_parallel_attributes(self.w1, should_set_attribute)
        mpu.set_expert_model_parallel_attributes(self.w2, should_set_attribute)

    def forward(self, x):
        h = x @ GatherWeights.apply(self.w1, self.group).t()
        return torch.nn.functional.gelu(h) @ GatherWeights.apply(self.w2, self.group)


def allreduce_gradients(model, data_parallel_group):
    world = dist.get_world_size(data_parallel_group)
    for p in model.parameters():
        p.grad.div_(world)
        if not mpu.param_is_expert_model_parallel(p):  # those hold the sum over all data already
            dist.all_reduce(p.grad, group=data_parallel_group)
