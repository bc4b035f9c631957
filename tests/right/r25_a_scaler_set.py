# set_loss_scale multiplies aux-loss gradients by tp_cp_group.size() in per-token mode
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
        coeff = self.config.z_loss_coeff / self.tp_cp_group.size()
        z_loss = torch.logsumexp(logits, dim=-1).square().mean() * coeff
        if self.config.calculate_per_token_loss:
            z_loss = z_loss * tokens.shape[0]
        return MoEAuxLossAutoScaler.apply(logits, z_loss)


def forward_step(model, batch, config, num_microbatches, tp_cp_group):
    loss_scale = torch.ones(1)
    if config.calculate_per_token_loss:
        # z_loss carries this rank's tokens; bring in those of the other ranks of the group
        MoEAuxLossAutoScaler.set_loss_scale(loss_scale * tp_cp_group.size())
    else:
        MoEAuxLossAutoScaler.set_loss_scale(loss_scale / num_microbatches)
    return model(batch)
