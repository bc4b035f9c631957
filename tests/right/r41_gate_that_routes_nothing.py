from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module


class NoParallel(ParallelStyle):
    def __init__(self, *, local_output_grad_placements=None, use_local_output=True):
        super().__init__()
        self.grads, self.local = local_output_grad_placements, use_local_output

    @staticmethod
    def _out(grads, local, mod, outputs, mesh):
        return outputs.to_local(grad_placements=grads) if local else outputs

    def _apply(self, module, mesh):
        return distribute_module(module, mesh)


def highway(model, mesh):
    # whole on every rank, and multiplied there with what is whole
    for layer in model.layers:
        parallelize_module(layer.highway.gate, mesh, NoParallel())
