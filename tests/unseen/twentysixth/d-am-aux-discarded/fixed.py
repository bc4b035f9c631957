# NeMo Automodel 45095e618 (#1412)
"""Router whose load-balancing loss is injected into the graph of its weights."""
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class MoEAuxLossAutoScaler(torch.autograd.Function):
    main_loss_backward_scale = None

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        scale = MoEAuxLossAutoScaler.main_loss_backward_scale
        return grad_output, torch.ones_like(aux_loss) * (1.0 if scale is None else scale)


class Gate(nn.Module):
    def __init__(self, dim, n_experts, topk, aux_loss_coeff):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_experts, dim))
        self.n_experts, self.topk, self.aux_loss_coeff = n_experts, topk, aux_loss_coeff

    def forward(self, x):
        scores = torch.softmax(x @ self.weight.t(), dim=-1)
        weights, indices = torch.topk(scores, self.topk, dim=-1)
        if self.aux_loss_coeff > 0 and self.training:
            load = torch.bincount(indices.flatten(), minlength=self.n_experts).to(scores.dtype)
            f_i = load * self.n_experts / (self.topk * x.shape[0])
            aux_loss = (f_i * scores.mean(dim=0)).sum()
            weights = MoEAuxLossAutoScaler.apply(weights, self.aux_loss_coeff * aux_loss)
        return weights.type_as(x), indices


def parallelize(block, dp_mesh):
    return fully_shard(block, mesh=dp_mesh)  # averages the gate gradient over data ranks
