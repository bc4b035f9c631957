# Source: NVIDIA/Megatron-LM commit 9ef8a2a420 (PR #5047), megatron/core/transformer/moe/router.py
# With per-token loss all gradients are divided by the global number of tokens, so the z-loss is
# multiplied by a token count beforehand. The router sees a 1/(tp*cp) part of the sequence; its
# local count is tp*cp times too small and the z-loss gradient vanishes with TP.
# Repair: multiply by num_local_tokens * tp_cp_group.size().
import torch

from megatron.core import parallel_state
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler, z_loss_func


class TopKRouter(MegatronModule):
    def __init__(self, config, tp_cp_group):
        super().__init__(config=config)
        self.tp_cp_group = tp_cp_group
        self.weight = torch.nn.Parameter(torch.empty((config.num_moe_experts, config.hidden_size)))
        setattr(self.weight, 'sequence_parallel', config.sequence_parallel)
        self.calculate_per_token_loss = config.calculate_per_token_loss

    def apply_z_loss(self, logits):
        # each tp/cp rank computes the z-loss of its own part of the sequence
        moe_z_loss_coeff = self.config.moe_z_loss_coeff / self.tp_cp_group.size()
        z_loss = z_loss_func(logits, moe_z_loss_coeff)
        if self.calculate_per_token_loss:
            num_local_tokens = logits.shape[0]
            logits = MoEAuxLossAutoScaler.apply(
                logits, z_loss * num_local_tokens * self.tp_cp_group.size()
            )
        else:
            logits = MoEAuxLossAutoScaler.apply(logits, z_loss)
        return logits

    def forward(self, hidden_states):
        # hidden_states: [seq / (tp * cp), batch, hidden]
        logits = torch.nn.functional.linear(hidden_states, self.weight)
        logits = self.apply_z_loss(logits.view(-1, self.config.num_moe_experts))
        return torch.topk(torch.softmax(logits, dim=-1), self.config.moe_router_topk, dim=-1)


def finalize_model_grads(model, config, total_num_tokens):
    """total_num_tokens: label tokens of all micro batches, summed over dp x cp."""
    dp_cp_size = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    for p in model.parameters():
        if getattr(p, 'sequence_parallel', False):
            torch.distributed.all_reduce(
                p.main_grad, group=parallel_state.get_tensor_model_parallel_group()
            )
        torch.distributed.all_reduce(
            p.main_grad, group=parallel_state.get_data_parallel_group(with_context_parallel=True)
        )
        p.main_grad.div_(total_num_tokens if config.calculate_per_token_loss else dp_cp_size)
