from torch import nn
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class ExpertStyle(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, mesh):
        x = inputs[0].to_local()
        if x.requires_grad:
            x = x.view_as(x)
            x.register_hook(lambda g: self.summed(g, mesh))
        return x

    def summed(self, grad, mesh):
        grad = grad.clone()
        dist.all_reduce(grad, group=mesh.get_group())
        return grad

    def _partition_fn(self, name, mod, mesh):
        mod.up = nn.Parameter(distribute_tensor(mod.up, mesh, [Shard(2)]))
        mod.down = nn.Parameter(distribute_tensor(mod.down, mesh, [Shard(1)]))

    def _prepare_output_fn(self, mod, outputs, mesh):
        return DTensor.from_local(outputs, mesh, (Partial(),), run_check=False)
