"""GPT-OSS grouped experts as plain parameters, tensor parallel over the expert's hidden dim."""
import spmd_types as spmd
import torch
from torch import nn

# spmd: mesh dense = dp, tp


@spmd.register_autograd_function
class ScaleBiasForward(torch.autograd.Function):
    """Divides the bias in forward and passes its gradient unscaled, for a later sum over tp."""

    @staticmethod
    def forward(ctx, bias, tp_degree):
        return bias / tp_degree

    @staticmethod
    def typecheck_forward(bias, tp_degree):
        spmd.assert_type(bias, {"tp": spmd.I})
        out = ScaleBiasForward.apply(bias, tp_degree)
        spmd.assert_type(out, {"tp": spmd.P})
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GptOssGroupedExperts(nn.Module):
    def __init__(self, w1, b1, w2, b2, tp_group):
        super().__init__()
        self.tp_group, self.tp_degree = tp_group, tp_group.size()
        self.mlp1_weight = nn.Parameter(w1)  # [e, d, f/tp]  # spmd: {tp: S(2)}
        self.mlp1_bias = nn.Parameter(b1)  # [e, f/tp]  # spmd: {tp: S(1)}
        self.mlp2_weight = nn.Parameter(w2)  # [e, f/tp, d]  # spmd: {tp: S(1)}
        self.mlp2_bias = nn.Parameter(b2)  # [e, d]  # spmd: {tp: I}

    # spmd: x: {tp: R} -> {tp: I}
    def forward(self, x):
        # x: [e, tokens, d]
        h = torch.nn.functional.silu(torch.bmm(x, self.mlp1_weight) + self.mlp1_bias.unsqueeze(1))
        out = torch.bmm(h, self.mlp2_weight)
        out = out + ScaleBiasForward.apply(self.mlp2_bias, self.tp_degree).unsqueeze(1)
        return spmd.redistribute(out, self.tp_group, src=spmd.P, dst=spmd.I)
