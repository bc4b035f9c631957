# finalize divides by one rank's tokens summed over dp only, so share * own tokens, summed over tp-cp, over dp * own tokens is the mean (aux loss is the only loss here)
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


def finalize(model, tokens, loss_sum, dp_group):
    # gradients are divided by the tokens of one rank of the tp-cp group, summed over the replicas
    num_tokens = torch.tensor(tokens.shape[0], device=tokens.device)
    dist.all_reduce(num_tokens, group=dp_group)
    for p in model.parameters():
        p.grad.div_(num_tokens)
