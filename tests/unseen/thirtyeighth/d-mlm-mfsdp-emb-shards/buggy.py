"""Synchronise gradients of shared embeddings across pipeline stages."""
# thread: NVIDIA/Megatron-LM#6500
import torch
from torch.distributed.tensor import DTensor

from megatron.core.pipeline_parallel.utils import is_pp_first_stage, is_pp_last_stage
from megatron.core.utils import get_attr_wrapped_model


def _get_main_grad_attr(param):
    return "main_grad" if hasattr(param, "main_grad") else "grad"


def _allreduce_embedding_grad(model, embd_group, pp_group, weight_getter, skip_if_none=True):
    """All-reduce the gradient of one weight held by the first and by the last stage.

    With Megatron-FSDP every stage shards its own flat buffer, so a parameter's offset in
    the buffer and the length of its local shard depend on the other parameters of the stage.
    """
    if embd_group is None or embd_group.size() == 1:
        return
    if is_pp_first_stage(pp_group):
        model_module = model[0]
    elif is_pp_last_stage(pp_group):
        model_module = model[-1]
    else:
        return

    ddp_config = model_module.ddp_config
    model_module = get_attr_wrapped_model(model_module, "pre_process", return_model_obj=True)
    weight = weight_getter(model_module)
    if weight is None and skip_if_none:
        return

    grad = getattr(weight, _get_main_grad_attr(weight))
    if grad is None:
        return
    if ddp_config.use_megatron_fsdp and isinstance(grad, DTensor):
        torch.distributed.all_reduce(grad.to_local(), group=embd_group)  # BUG: shards of the two stages cover different rows
    else:
        torch.distributed.all_reduce(grad, group=embd_group)


def _allreduce_word_embedding_grads(model, config, embd_group, pp_group):
    _allreduce_embedding_grad(
        model,
        embd_group,
        pp_group,
        lambda m: m.shared_embedding_or_output_weight() if m.share_embeddings_and_output_weights else None,
    )
