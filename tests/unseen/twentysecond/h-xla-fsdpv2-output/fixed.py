"""FSDP via SPMD: shard the parameters and the output of a module."""
import torch
import torch_xla.distributed.spmd as xs


class SpmdFullyShardedDataParallel(torch.nn.Module):
    def __init__(self, module, mesh):
        super().__init__()
        self.module, self.mesh = module, mesh
        for p in module.parameters():
            xs.mark_sharding(p, mesh, ("fsdp",) + (None,) * (p.dim() - 1))

    def forward(self, *args, **kwargs):
        output = self.module(*args, **kwargs)
        spec = ("fsdp",) + (None,) * (output.dim() - 1)
        output = xs.mark_sharding_with_gradients(output, self.mesh, spec)
        return output
