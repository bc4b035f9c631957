"""Build a sequence-parallel model on the meta device."""
import torch
import torch.distributed as dist
import torch.nn as nn


def attach_norm_hooks(model, tp_group):
    """Norm weights see another part of the sequence on every TP rank."""

    def reduce_over_tp(grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=tp_group)
        return grad

    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            for p in module.parameters(recurse=False):
                p.register_hook(reduce_over_tp)


def build_model(model_cls, config, tp_group, sequence_parallel):
    with torch.device("meta"):
        model = model_cls(config)
    model.to_empty(device=torch.device("cuda", torch.cuda.current_device()))
    with torch.no_grad():
        model.init_weights()
    if sequence_parallel:
        attach_norm_hooks(model, tp_group)
    return model
