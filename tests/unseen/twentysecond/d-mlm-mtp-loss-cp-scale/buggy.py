"""Scaling of the multi-token prediction loss in the schedule (NVIDIA/Megatron-LM#3959)."""
import torch
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler


def forward_step_calc_loss(output_tensor, loss_func, config, num_microbatches, cp_group_size):
    output_tensor, num_tokens, report = loss_func(output_tensor)
    if not config.calculate_per_token_loss:
        output_tensor /= num_tokens
        output_tensor *= cp_group_size  # gradients are later averaged over dp x cp
        output_tensor /= num_microbatches

    loss_scale = torch.ones(1, device=output_tensor.device)
    if config.num_moe_experts is not None:
        if config.calculate_per_token_loss:
            MoEAuxLossAutoScaler.set_loss_scale(loss_scale)
        else:
            MoEAuxLossAutoScaler.set_loss_scale(loss_scale * cp_group_size / num_microbatches)
    if config.mtp_num_layers is not None:
        if config.calculate_per_token_loss:
            MTPLossAutoScaler.set_loss_scale(loss_scale)
        else:
            MTPLossAutoScaler.set_loss_scale(loss_scale / num_microbatches)  # BUG: cp_size times too weak
    return output_tensor, num_tokens, report
