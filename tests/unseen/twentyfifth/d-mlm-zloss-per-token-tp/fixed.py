# Megatron-LM 9ef8a2a420 (PR #5047): with calculate_per_token_loss the z-loss is pre-multiplied by the
# tokens of this sequence-parallel shard only, tp*cp times less than what finalize_model_grads divides by.
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler, z_loss_func


class TopKRouter(torch.nn.Module):
    def __init__(self, config, tp_cp_group):
        super().__init__()
        self.config = config
        self.tp_cp_group = tp_cp_group
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        setattr(self.weight, 'sequence_parallel', config.sequence_parallel)
        self.calculate_per_token_loss = config.calculate_per_token_loss

    def apply_z_loss(self, logits):
        # logits: [tokens of this tp/cp shard, num_experts]
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
        logits = torch.nn.functional.linear(hidden_states.flatten(0, -2), self.weight)
        return self.apply_z_loss(logits)


def finalize_model_grads(params, num_tokens):
    """With calculate_per_token_loss; num_tokens: loss tokens of this data- and context-parallel rank."""
    dp_cp_group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for param in params:
        torch.distributed.all_reduce(param.main_grad, group=dp_cp_group)
    grads = [p.main_grad for p in params if getattr(p, 'sequence_parallel', False)]
    if grads:
        coalesced = _flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)
    torch.distributed.all_reduce(num_tokens, group=dp_cp_group)
    for param in params:
        param.main_grad.mul_(1.0 / num_tokens)
