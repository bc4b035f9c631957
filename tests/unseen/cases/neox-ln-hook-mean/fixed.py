"""Keep layer norms in sync under sequence parallelism by a hook on their gradients."""
# EleutherAI/gpt-neox PR 1259: the hook averaged the gradients of the sequence shards where it has to sum them.
import torch
import torch.nn.functional as F
from megatron import mpu
from megatron.mpu import (
    gather_from_sequence_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class LayerNorm(torch.nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight


class ParallelMLP(torch.nn.Module):
    def __init__(self, neox_args, w_in, w_out):
        super().__init__()
        self.w_in = torch.nn.Parameter(w_in)
        self.w_in.model_parallel = True
        self.w_out = torch.nn.Parameter(w_out)
        self.w_out.model_parallel = True
        self.norm = LayerNorm(neox_args.hidden_size)

    def forward(self, x):
        # x: [s/tp, b, h]
        h = gather_from_sequence_parallel_region(self.norm(x))
        h = F.gelu(F.linear(h, self.w_in))
        return x + reduce_scatter_to_sequence_parallel_region(F.linear(h, self.w_out))


def reduce_weight_grads_from_model_parallel_region(input_):
    """A hook that can be applied to any weight tensor via .register_hook()."""
    if mpu.get_model_parallel_world_size() == 1:
        return input_
    dt = input_.dtype
    input_ = input_.float().contiguous()
    torch.distributed.all_reduce(input_, group=mpu.get_model_parallel_group())
    return input_.to(dt)


def mark_norms_for_sequence_parallelism(model):
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.weight.register_hook(reduce_weight_grads_from_model_parallel_region)


def setup_model(neox_args, w_in, w_out):
    model = ParallelMLP(neox_args, w_in, w_out)
    mark_norms_for_sequence_parallelism(model)
    return model
