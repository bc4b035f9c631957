# thread: https://github.com/NVIDIA/Megatron-LM/pull/3959
"""Loss part of the forward step of the pipeline schedules, with the auxiliary-loss autograd scalers."""
import torch

from megatron.core import parallel_state


class MoEAuxLossAutoScaler(torch.autograd.Function):
    """Attaches the load-balancing loss to the graph of the router output."""

    main_loss_backward_scale = None

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        scale = MoEAuxLossAutoScaler.main_loss_backward_scale
        if scale is None:
            scale = torch.tensor(1.0, device=aux_loss.device)
        return grad_output, torch.ones_like(aux_loss) * scale

    @staticmethod
    def set_loss_scale(scale):
        MoEAuxLossAutoScaler.main_loss_backward_scale = scale


class MTPLossAutoScaler(torch.autograd.Function):
    """Attaches the multi-token-prediction loss to the graph of the hidden states."""

    main_loss_backward_scale = None

    @staticmethod
    def forward(ctx, output, mtp_loss):
        ctx.save_for_backward(mtp_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (mtp_loss,) = ctx.saved_tensors
        scale = MTPLossAutoScaler.main_loss_backward_scale
        if scale is None:
            scale = torch.tensor(1.0, device=mtp_loss.device)
        return grad_output, torch.ones_like(mtp_loss) * scale

    @staticmethod
    def set_loss_scale(scale):
        MTPLossAutoScaler.main_loss_backward_scale = scale


def forward_step_calc_loss(
    output_tensor, loss_func, config, num_microbatches, forward_data_store, cp_group_size=None
):
    """Runs loss_func on the last stage and sets the scale of the auxiliary losses.

    The gradient buffers are averaged over data- and context-parallel ranks afterwards.
    """
    if cp_group_size is None:
        cp_group_size = parallel_state.get_context_parallel_world_size()
    num_tokens = torch.tensor(0, dtype=torch.int)
    if parallel_state.is_pipeline_last_stage():
        outputs = loss_func(output_tensor)
        if len(outputs) == 3:
            output_tensor, num_tokens, loss_reduced = outputs
            if not config.calculate_per_token_loss:
                output_tensor = output_tensor * cp_group_size / torch.clamp(num_tokens, min=1)
                output_tensor = output_tensor / num_microbatches
        else:
            output_tensor, loss_reduced = outputs
            output_tensor = output_tensor * cp_group_size / num_microbatches
        forward_data_store.append(loss_reduced)

    if config.grad_scale_func is not None:
        loss_scale = config.grad_scale_func(torch.ones(1, device=output_tensor.device))
    else:
        loss_scale = torch.ones(1, device=output_tensor.device)

    if getattr(config, "num_moe_experts", None) is not None:
        if config.calculate_per_token_loss:
            MoEAuxLossAutoScaler.set_loss_scale(loss_scale)
        else:
            MoEAuxLossAutoScaler.set_loss_scale(loss_scale * cp_group_size / num_microbatches)

    if getattr(config, "mtp_num_layers", None) is not None:
        if config.calculate_per_token_loss:
            MTPLossAutoScaler.set_loss_scale(loss_scale)
        else:
            MTPLossAutoScaler.set_loss_scale(loss_scale / num_microbatches)  # BUG

    return output_tensor, num_tokens


def process_mtp_loss(hidden_states, mtp_logits, labels, loss_mask, loss_fn, config):
    """Called by the model on the last stage; losses are sums over this rank's chunk of the sequence."""
    total = loss_mask.sum().detach().clone()
    if parallel_state.get_context_parallel_world_size() > 1:
        torch.distributed.all_reduce(total, group=parallel_state.get_context_parallel_group())
    factor = config.mtp_loss_scaling_factor / config.mtp_num_layers
    for logits in mtp_logits:
        labels = torch.roll(labels, shifts=-1, dims=-1)
        mtp_loss = loss_fn(logits, labels) * loss_mask
        hidden_states = MTPLossAutoScaler.apply(hidden_states, factor * mtp_loss.sum() / total)
    return hidden_states
