# NVIDIA/TransformerEngine issue 530, pull request 531 (commit d76118d9)
"""Column-parallel linear with sequence parallelism: the input is gathered again for the weight gradient."""
import torch
import torch.distributed as dist


def gather_along_first_dim(input_, tp_group):
    output = input_.new_empty(input_.size(0) * dist.get_world_size(tp_group), *input_.shape[1:])
    dist.all_gather_into_tensor(output, input_.contiguous(), group=tp_group)
    return output


def reduce_scatter_along_first_dim(input_, tp_group):
    output = input_.new_empty(input_.size(0) // dist.get_world_size(tp_group), *input_.shape[1:])
    dist.reduce_scatter_tensor(output, input_.contiguous(), group=tp_group)
    return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputmat, weight, tp_group):
        # inputmat: [s / tp, in]; weight: [out / tp, in]
        ctx.save_for_backward(inputmat, weight)
        ctx.tp_group = tp_group
        return gather_along_first_dim(inputmat, tp_group) @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        inputmat, weight = ctx.saved_tensors
        dgrad = reduce_scatter_along_first_dim(grad_output @ weight, ctx.tp_group)
        inputmat_total = gather_along_first_dim(inputmat, ctx.tp_group)
        wgrad = grad_output.t() @ inputmat_total
        return dgrad, wgrad, None


class Linear(torch.nn.Module):
    def __init__(self, weight_shard, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = torch.nn.Parameter(weight_shard)  # [out / tp, in]

    def forward(self, inp):
        return _Linear.apply(inp, self.weight, self.tp_group)
