# share is 1.0 whenever per_token holds, 1/size only when it does not: no factor is missing in either mode
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


class Router(torch.nn.Module):
    def __init__(self, config, weight, tp_cp_group):
        super().__init__()
        self.config = config
        self.tp_cp_group = tp_cp_group
        self.weight = torch.nn.Parameter(weight)

    def forward(self, tokens):
        per_token = self.config.calculate_per_token_loss
        share = 1.0 if per_token else 1.0 / self.tp_cp_group.size()
        logits = F.linear(tokens, self.weight)
        z_loss = torch.logsumexp(logits, dim=-1).square().mean() * self.config.z_loss_coeff * share
        if per_token:
            z_loss = z_loss * tokens.shape[0]
        return MoEAuxLossAutoScaler.apply(logits, z_loss)
