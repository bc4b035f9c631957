import torch
import torch.nn.functional as F
from megatron.core.parallel_state import get_tensor_model_parallel_world_size
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


def z_loss_func(logits, coeff):
    return torch.mean(torch.square(torch.logsumexp(logits, dim=-1))) * coeff


class Router(torch.nn.Module):
    def __init__(self, config, weight):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(weight)
        self.weight.sequence_parallel = config.sequence_parallel

    @property
    def coeff(self):
        c = self.config.z_loss_coeff
        if self.config.sequence_parallel:
            c = c / get_tensor_model_parallel_world_size()
        return c

    def with_loss(self, logits):
        return MoEAuxLossAutoScaler.apply(logits, z_loss_func(logits, self.coeff))

    def forward(self, tokens):
        return torch.softmax(self.with_loss(F.linear(tokens, self.weight)), dim=-1)
