"""Tensor-parallel experts with an output bias."""
import torch
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class ScaleBiasForward(torch.autograd.Function):
    """Divide the bias in forward, leave its gradient alone."""

    @staticmethod
    def forward(ctx, bias, tp_degree):
        return bias / tp_degree

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GptOssGroupedExperts(torch.nn.Module):
    def __init__(self, w1_shard, w2_shard, b2, tp_group):
        super().__init__()
        self.w1 = torch.nn.Parameter(w1_shard)  # [experts, dim, hidden/tp]
        self.w2 = torch.nn.Parameter(w2_shard)  # [experts, hidden/tp, dim]
        self.w1.tensor_model_parallel = self.w2.tensor_model_parallel = True
        self.b2 = torch.nn.Parameter(b2)  # [experts, dim], replicated over TP
        self.tp_group = tp_group

    def forward(self, x):
        # x: [experts, tokens, dim], the same on every TP rank
        x = copy_to_tensor_model_parallel_region(x, group=self.tp_group)
        h = torch.nn.functional.silu(torch.bmm(x, self.w1))
        b2 = ScaleBiasForward.apply(self.b2, self.tp_group.size()).unsqueeze(1)
        out = torch.bmm(h, self.w2) + b2
        return reduce_from_tensor_model_parallel_region(out, group=self.tp_group)
