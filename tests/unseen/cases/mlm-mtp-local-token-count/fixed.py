"""Multi-token prediction loss, injected into the graph of the hidden states."""
# NVIDIA/Megatron-LM issue 7452 no. 3: with calculate_per_token_loss the gradients are divided by the global token count later; the
# MTP loss is divided by the local count and multiplied by the local count of the main loss.
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class MTPLossAutoScaler(torch.autograd.Function):
    main_loss_backward_scale = torch.tensor(1.0)

    @staticmethod
    def forward(ctx, output, mtp_loss):
        ctx.save_for_backward(mtp_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (mtp_loss,) = ctx.saved_tensors
        scale = MTPLossAutoScaler.main_loss_backward_scale
        return grad_output, torch.ones_like(mtp_loss) * scale


def roll_tensor(x):
    rolled = torch.roll(x, shifts=-1, dims=-1)
    rolled[..., -1] = 0
    return rolled


def process_mtp_loss(hidden_states, mtp_hidden, labels, loss_mask, compute_loss, config):
    original_num_tokens = loss_mask.sum()
    for i in range(config.mtp_num_layers):
        labels, loss_mask = roll_tensor(labels), roll_tensor(loss_mask)
        mtp_loss = compute_loss(mtp_hidden[i], labels) * loss_mask
        num_tokens = loss_mask.sum()
        scale = config.mtp_loss_scaling_factor / config.mtp_num_layers
        if config.calculate_per_token_loss:
            counts = torch.stack([original_num_tokens, num_tokens]).float()
            dist.all_reduce(counts, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
            mtp_loss = scale * mtp_loss * (counts[0] / counts[1])
        else:
            mtp_loss = scale * mtp_loss / num_tokens
        hidden_states = MTPLossAutoScaler.apply(hidden_states, mtp_loss)
    return hidden_states


def loss_func(output_tensor, loss_mask):
    return torch.sum(output_tensor.float().view(-1) * loss_mask.view(-1)), loss_mask.sum().int()


def finalize_model_grads(model, num_tokens, config):
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for p in model.parameters():
        dist.all_reduce(p.main_grad, group=group)
    if config.calculate_per_token_loss:
        dist.all_reduce(num_tokens, group=group)
        for p in model.parameters():
            p.main_grad.div_(num_tokens)
