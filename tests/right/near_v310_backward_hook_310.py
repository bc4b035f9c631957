import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


def sum_input_grad(mod, grad_input, grad_output):
    summed = []
    for g in grad_input:
        if g is not None:
            g = g.clone()
            dist.all_reduce(g, group=mod.tp_group)
        summed.append(g)
    return tuple(summed)


class ExpertStyle(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, mesh):
        return inputs[0].to_local()

    def _partition_fn(self, name, mod, mesh):
        mod.up = nn.Parameter(distribute_tensor(mod.up, mesh, [Shard(2)]))
        mod.down = nn.Parameter(distribute_tensor(mod.down, mesh, [Shard(1)]))
        mod.tp_group = mesh.get_group()
        mod.inner.register_full_backward_hook(sum_input_grad)

    def _prepare_output_fn(self, mod, outputs, mesh):
        return DTensor.from_local(outputs, mesh, (Partial(),), run_check=False)
