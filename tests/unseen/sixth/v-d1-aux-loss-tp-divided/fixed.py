"""Auxiliary loss in the schedule."""
import torch
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


def forward_step_calc_loss(output_tensor, loss_func, config, num_microbatches, cp_group_size):
    output_tensor, num_tokens, report = loss_func(output_tensor)
    if not config.calculate_per_token_loss:
        output_tensor /= num_tokens
        output_tensor *= cp_group_size  # gradients are later averaged over dp x cp
        output_tensor /= num_microbatches
    if config.num_moe_experts is not None:
        loss_scale = torch.ones(1, device=output_tensor.device)
        if config.calculate_per_token_loss:
            MoEAuxLossAutoScaler.set_loss_scale(loss_scale)
        else:
            MoEAuxLossAutoScaler.set_loss_scale(loss_scale * cp_group_size / num_microbatches)
    return output_tensor, num_tokens, report
