"""All-reduce the layer-norm gradients of sequence parallelism in one bucket."""
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from megatron.core import parallel_state


def allreduce_layernorm_grads(model, config):
    if parallel_state.get_tensor_model_parallel_world_size() > 1 and config.sequence_parallel:
        grads = []
        for model_chunk in model:
            for param in model_chunk.parameters():
                if getattr(param, "sequence_parallel", False):
                    grads.append(param.main_grad.data)
        if grads:
            coalesced = _flatten_dense_tensors(grads)
            torch.distributed.all_reduce(
                coalesced, group=parallel_state.get_tensor_model_parallel_group()
            )
            grads = _unflatten_dense_tensors(coalesced, grads)  # BUG: never written back to main_grad


def finalize_model_grads(model, config):
    for model_chunk in model:
        model_chunk.finish_grad_sync()
    allreduce_layernorm_grads(model, config)
