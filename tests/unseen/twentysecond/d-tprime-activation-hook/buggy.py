"""Sharding constraints on the outputs of selected modules."""
import torch_xla.distributed.spmd as xs

ACTIVATION_SHARDING = {
    "embed_tokens": ("fsdp", None, None),
    "mlp": ("fsdp", None, None),
    "lm_head": ("fsdp", None, "tensor"),
}


def shard_activations(model, mesh):
    def make_hook(spec):
        def hook(module, args, output):
            xs.mark_sharding(output, mesh, spec)  # BUG: forward only, backward has no constraint
            return output

        return hook

    for name, module in model.named_modules():
        spec = ACTIVATION_SHARDING.get(name.rsplit(".", 1)[-1])
        if spec is not None:
            module.register_forward_hook(make_hook(spec))
    return model
