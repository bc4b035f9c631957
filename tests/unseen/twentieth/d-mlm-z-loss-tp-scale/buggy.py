"""Router z-loss on the sequence shard of each tensor-parallel rank."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


def z_loss_func(logits, z_loss_coeff):
    return torch.mean(torch.square(torch.logsumexp(logits, dim=-1))) * z_loss_coeff


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", True)  # MoE with TP requires sequence parallelism

    def apply_z_loss(self, logits):
        z_loss = z_loss_func(logits, self.config.moe_z_loss_coeff)  # BUG: tp local means are summed, not averaged
        return MoEAuxLossAutoScaler.apply(logits, z_loss)

    def forward(self, hidden_states):
        # hidden_states: [s/tp, b, h]
        logits = self.apply_z_loss(F.linear(hidden_states, self.weight))
        return torch.topk(torch.softmax(logits, dim=-1), self.config.moe_router_topk)


def allreduce_sequence_parallel_grads(model):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            torch.distributed.all_reduce(p.main_grad, group=parallel_state.get_tensor_model_parallel_group())
