"""Multi-token prediction loss attached to the main hidden states (Megatron-Core)."""
import torch
from megatron.core.transformer.multi_token_prediction import roll_tensor


class MTPLossAutoScaler(torch.autograd.Function):
    main_loss_backward_scale = torch.tensor(1.0)

    @staticmethod
    def forward(ctx, output, mtp_loss):
        ctx.save_for_backward(mtp_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (mtp_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(mtp_loss) * MTPLossAutoScaler.main_loss_backward_scale

    @staticmethod
    def set_loss_scale(scale):
        MTPLossAutoScaler.main_loss_backward_scale = scale


def process_mtp_loss(model, hidden_states_list, labels, loss_mask, config):
    hidden_states = hidden_states_list[0]
    for mtp_layer_number in range(config.mtp_num_layers):
        mtp_logits, _ = model.output_layer(hidden_states_list[mtp_layer_number + 1])
        labels, _ = roll_tensor(labels, shifts=-1, dims=-1)
        loss_mask, num_tokens = roll_tensor(loss_mask, shifts=-1, dims=-1)
        mtp_loss = loss_mask * model.compute_language_model_loss(labels, mtp_logits)
        mtp_loss_scale = config.mtp_loss_scaling_factor / config.mtp_num_layers
        hidden_states = MTPLossAutoScaler.apply(hidden_states, mtp_loss_scale * mtp_loss / num_tokens)  # BUG: divided by the token total again below
    return hidden_states


def forward_step_calc_loss(output_tensor, loss_mask, config, loss_scale, num_microbatches):
    loss = torch.sum(output_tensor.float() * loss_mask)
    num_tokens = loss_mask.sum().detach()
    if config.calculate_per_token_loss:
        MTPLossAutoScaler.set_loss_scale(loss_scale)
    else:
        loss = loss / num_tokens / num_microbatches
        MTPLossAutoScaler.set_loss_scale(loss_scale / num_microbatches)
    return loss, num_tokens


def scale_gradients(params, config, total_num_tokens):
    if config.calculate_per_token_loss:
        for p in params:
            p.main_grad.div_(total_num_tokens)
