"""Gate with a load-balancing loss that rides on the gate weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


class Gate(nn.Module):
    def __init__(self, dim, num_experts, topk, aux_loss_coeff):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, dim))
        self.topk, self.aux_loss_coeff = topk, aux_loss_coeff

    def aux_loss(self, scores, indices):
        load = F.one_hot(indices, scores.size(-1)).float().mean(dim=(0, 1))
        return (scores.mean(dim=0) * load).sum() * scores.size(-1)

    def forward(self, x):
        scores = F.linear(x, self.weight).softmax(dim=-1, dtype=torch.float32)
        weights, indices = torch.topk(scores, self.topk, dim=-1)
        if self.training and self.aux_loss_coeff > 0:
            aux = self.aux_loss(scores, indices) * self.aux_loss_coeff
            MoEAuxLossAutoScaler.apply(weights, aux)  # BUG: the result is dropped, and with it the gradient
        return weights.type_as(x), indices
