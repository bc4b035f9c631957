import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle


class ExpertTensorParallel(ParallelStyle):
    """Inputs get their gradient summed by the dispatch, which is an autograd function that all-reduces."""

    def _prepare_input_fn(self, mod, inputs, device_mesh):
        routed, counts = inputs
        routed = copy_to_region(routed, device_mesh.get_group())
        routed = DTensor.from_local(routed, device_mesh, (Replicate(),)).to_local()
        return routed, counts

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        out = DTensor.from_local(outputs, device_mesh, (Partial(),))
        return out.redistribute(placements=(Replicate(),)).to_local()

    def _apply(self, module, device_mesh):
        return distribute_module(module, device_mesh, None, self._prepare_input_fn, self._prepare_output_fn)


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        torch.distributed.all_reduce(g, group=ctx.group)
        return g, None


def copy_to_region(x, group):
    return _Copy.apply(x, group)
