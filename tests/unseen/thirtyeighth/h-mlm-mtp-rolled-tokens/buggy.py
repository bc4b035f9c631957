"""Losses of the multi-token-prediction layers."""
# thread: NVIDIA/Megatron-LM#3159
import torch

from megatron.core import parallel_state
from megatron.core.transformer.multi_token_prediction import (
    MTPLossAutoScaler,
    MTPLossLoggingHelper,
    roll_tensor,
)


def process_mtp_loss(
    hidden_states,
    labels,
    loss_mask,
    output_layer,
    output_weight,
    compute_language_model_loss,
    config,
    cp_group=None,
    is_training=True,
):
    """hidden_states holds the main hidden states followed by one chunk per MTP layer."""
    hidden_states_list = torch.chunk(hidden_states, 1 + config.mtp_num_layers, dim=0)
    hidden_states = hidden_states_list[0]

    mtp_labels = labels.clone()
    if loss_mask is None:
        loss_mask = torch.ones_like(mtp_labels)

    for layer in range(config.mtp_num_layers):
        mtp_logits, _ = output_layer(hidden_states_list[layer + 1], weight=output_weight)
        mtp_labels, _ = roll_tensor(mtp_labels, shifts=-1, dims=-1, cp_group=cp_group)
        loss_mask, num_tokens = roll_tensor(loss_mask, shifts=-1, dims=-1, cp_group=cp_group)

        mtp_loss = compute_language_model_loss(mtp_labels, mtp_logits)
        mtp_loss = loss_mask * mtp_loss
        num_tokens_safe = torch.clamp(num_tokens, min=1)
        if is_training:
            MTPLossLoggingHelper.save_loss_to_tracker(
                torch.sum(mtp_loss) / num_tokens_safe,
                layer,
                config.mtp_num_layers,
                avg_group=parallel_state.get_data_parallel_group(with_context_parallel=True),
            )

        mtp_loss_scale = config.mtp_loss_scaling_factor / config.mtp_num_layers
        if config.calculate_per_token_loss:
            hidden_states = MTPLossAutoScaler.apply(hidden_states, mtp_loss_scale * mtp_loss)  # BUG: divided later by the unrolled token count
        else:
            hidden_states = MTPLossAutoScaler.apply(
                hidden_states, mtp_loss_scale * mtp_loss / num_tokens_safe
            )
    return hidden_states
