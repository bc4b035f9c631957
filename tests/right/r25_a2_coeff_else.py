# if/else on the same flag: divided only where no tokens are multiplied in
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
        logits = F.linear(tokens, self.weight)
        z = torch.logsumexp(logits, dim=-1).square().mean()
        if self.config.calculate_per_token_loss:
            coeff = self.config.z_loss_coeff
        else:
            coeff = self.config.z_loss_coeff / self.tp_cp_group.size()
        z_loss = z * coeff
        if self.config.calculate_per_token_loss:
            z_loss = z_loss * tokens.shape[0]
        return MoEAuxLossAutoScaler.apply(logits, z_loss)
