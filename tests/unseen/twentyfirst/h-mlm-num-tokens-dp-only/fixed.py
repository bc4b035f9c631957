"""Finalise gradients of a per-token loss."""
import torch
from megatron.core import parallel_state


def loss_func(loss_mask, output_tensor):
    # loss_mask, output_tensor: this context-parallel rank's part of the sequence
    loss = torch.sum(output_tensor.float().view(-1) * loss_mask.view(-1))
    return loss, loss_mask.sum().detach()


def finalize_model_grads(model, num_tokens):
    dp_cp_group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for p in model.parameters():
        torch.distributed.all_reduce(p.main_grad, group=dp_cp_group)  # sum, no scaling
    torch.distributed.all_reduce(num_tokens, group=dp_cp_group)
    scaling = 1.0 / num_tokens.clamp(min=1)
    for p in model.parameters():
        p.main_grad.mul_(scaling)
