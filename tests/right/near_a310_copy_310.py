import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ExpertStyle(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, mesh):
        return CopyToGroup.apply(inputs[0].to_local(), mesh.get_group())

    def _partition_fn(self, name, mod, mesh):
        mod.up = nn.Parameter(distribute_tensor(mod.up, mesh, [Shard(2)]))
        mod.down = nn.Parameter(distribute_tensor(mod.down, mesh, [Shard(1)]))

    def _prepare_output_fn(self, mod, outputs, mesh):
        return DTensor.from_local(outputs, mesh, (Partial(),), run_check=False)
