"""Grouped experts of GPT-OSS: row-sharded down projection with a replicated bias.

Reduced from pytorch/torchtitan ec30db9d09 ([Bug][GPT-OSS][spmd_types] Grouped-expert output
bias is multiplied by TP degree, #4245).
"""
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from torchtitan.distributed.spmd_types import spmd_mesh_size
from torchtitan.distributed.utils import get_spmd_backend


class ScaleBiasForward(torch.autograd.Function):
    """Scales the bias in forward, leaves its gradient alone."""

    @staticmethod
    def forward(ctx, bias, tp_degree):
        return bias / tp_degree if tp_degree > 1 else bias

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GptOssGroupedExperts(nn.Module):
    def __init__(self, num_experts, dim, hidden_dim):
        super().__init__()
        self.mlp2_weight_EDF = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))  # spmd: {tp: S(2)}
        self.mlp2_bias_ED = nn.Parameter(torch.empty(num_experts, dim))  # spmd: {tp: I}

    # spmd: h_RF: {tp: S(-1)} -> {tp: P}
    def forward(self, h_RF, offsets_E, counts_E):
        weight, bias = self.mlp2_weight_EDF, self.mlp2_bias_ED
        if isinstance(weight, DTensor):
            weight, bias = weight.to_local(), bias.to_local()
        h_RD = torch._grouped_mm(h_RF, weight.transpose(-2, -1), offs=offsets_E)
        b_RD = bias.repeat_interleave(counts_E, dim=0, output_size=h_RF.shape[0])

        tp_degree = 1
        if get_spmd_backend() == "spmd_types":
            tp_degree = spmd_mesh_size("tp")
        elif isinstance(self.mlp2_weight_EDF, DTensor):
            tp_degree = self.mlp2_weight_EDF.device_mesh["tp"].size()
        return h_RD + ScaleBiasForward.apply(b_RD, tp_degree)
