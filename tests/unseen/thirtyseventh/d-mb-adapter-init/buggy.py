# thread: https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/5840
"""Low-rank adapter around a row-parallel projection."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from torch import nn


class SumOverTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=parallel_state.get_tensor_model_parallel_group())
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def xavier_std(fan_in, fan_out):
    return (2.0 / (fan_in + fan_out)) ** 0.5


class ShardedDown(nn.Module):
    """Input features are split over the group; the low-rank output is whole."""

    def __init__(self, in_features, rank):
        super().__init__()
        tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.in_features, self.rank = in_features, rank
        self.weight = nn.Parameter(torch.empty(rank, in_features // tp_size, device="cuda"))
        self.weight.tensor_model_parallel = True
        self.weight.partition_dim = 1
        self.reset_parameters()

    def reset_parameters(self):
        with get_cuda_rng_tracker().fork():
            std = xavier_std(self.weight.shape[1], self.weight.shape[0])  # BUG
            nn.init.normal_(self.weight, std=std)

    def forward(self, x):
        return SumOverTP.apply(x @ self.weight.t())


class Up(nn.Module):
    def __init__(self, rank, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_features, rank, device="cuda"))

    def forward(self, x):
        return x @ self.weight.t()


class AdaptedRowParallel(nn.Module):
    """The base layer takes this rank's features and returns the summed output."""

    def __init__(self, base, in_features, out_features, rank=32, alpha=32):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.linear_in = ShardedDown(in_features, rank)
        self.linear_out = Up(rank, out_features)
        self.scale = alpha / rank

    def forward(self, x):
        out, bias = self.base(x)
        return out + self.linear_out(self.linear_in(x)) * self.scale, bias


def adapt(model, config, rank, alpha, targets=("linear_proj", "linear_fc2")):
    """Sequence parallelism is off for this recipe."""
    assert not config.sequence_parallel
    widths = {
        "linear_proj": config.num_attention_heads * config.kv_channels,
        "linear_fc2": config.ffn_hidden_size,
    }
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets:
                wrapped = AdaptedRowParallel(child, widths[name], config.hidden_size, rank, alpha)
                setattr(module, name, wrapped)
    return model
