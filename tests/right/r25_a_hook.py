# the weight's own gradient hook multiplies by the group's size in the same flag; only the aux loss reaches this weight
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

        self.weight.register_hook(self._undo_share)

    def _undo_share(self, grad):
        # only the auxiliary loss reaches this weight: the logits are detached for the dispatch
        if self.config.calculate_per_token_loss:
            return grad * self.tp_cp_group.size()
        return grad

    def forward(self, tokens):
        logits = F.linear(tokens.detach(), self.weight)
        coeff = self.config.z_loss_coeff / self.tp_cp_group.size()
        z_loss = torch.logsumexp(logits, dim=-1).square().mean() * coeff
        if self.config.calculate_per_token_loss:
            z_loss = z_loss * tokens.shape[0]
        return MoEAuxLossAutoScaler.apply(logits.detach() + 0 * logits, z_loss)
