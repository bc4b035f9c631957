"""GPT-OSS experts: bias of the row-parallel second matmul (torchtitan)."""
import torch
from torch import nn


class ScaleBiasForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bias, tp_degree):
        return bias / tp_degree

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GptOssGroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts, tp_degree):
        super().__init__()
        self.tp_degree = tp_degree
        self.mlp1_weight = nn.Parameter(torch.empty(num_experts, 2 * hidden_dim // tp_degree, dim))
        self.mlp1_bias = nn.Parameter(torch.empty(num_experts, 2 * hidden_dim // tp_degree))
        self.mlp2_weight = nn.Parameter(torch.empty(num_experts, dim, hidden_dim // tp_degree))
        self.mlp2_bias = nn.Parameter(torch.empty(num_experts, dim))  # replicated over tp

    def forward(self, x, num_tokens_per_expert):
        # x: the same on all tp ranks, gradient of x and the output are summed over tp by the caller
        outs = []
        for e, x_e in enumerate(torch.split(x, num_tokens_per_expert.tolist(), dim=0)):
            h = torch.matmul(x_e, self.mlp1_weight[e].t()) + self.mlp1_bias[e]
            gate, up = h.chunk(2, dim=-1)
            h = torch.nn.functional.silu(gate) * up
            b2 = self.mlp2_bias[e] / self.tp_degree  # BUG: divides the gradient of the bias too
            outs.append(torch.matmul(h, self.mlp2_weight[e].t()) + b2)
        return torch.cat(outs, dim=0)
