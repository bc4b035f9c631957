"""Per-token loss: scale gradients by the global token count (Megatron-Core finalize_model_grads)."""
import torch
from megatron.core import parallel_state


def loss_func(loss_mask, output_tensor):
    # both are sliced along the sequence by get_batch_on_this_cp_rank
    losses = output_tensor.view(-1).float()
    loss_mask = loss_mask.view(-1).float()
    num_tokens = loss_mask.sum().clone().detach().to(torch.int)
    return torch.sum(losses * loss_mask), num_tokens


def finalize_model_grads(model, num_tokens=None):
    # buckets: plain sum over the data x context parallel group
    for model_chunk in model:
        model_chunk.finish_grad_sync()

    if num_tokens is not None:
        last_rank = parallel_state.get_pipeline_model_parallel_last_rank()
        torch.distributed.broadcast(
            num_tokens, src=last_rank, group=parallel_state.get_pipeline_model_parallel_group()
        )
        torch.distributed.all_reduce(
            num_tokens, group=parallel_state.get_data_parallel_group(with_context_parallel=True)
        )
        for model_chunk in model:
            if num_tokens > 0:
                model_chunk.scale_gradients(1.0 / num_tokens)
