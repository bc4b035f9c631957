# cellarium-ml, pull 184: the backward of the gather has to sum the gradient of every slice over the ranks and then take
# the own one; an all_reduce of grads[rank] adds up gradients of different slices.
"""Gather layer and contrastive loss, trained under DDP."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, supporting backward propagation."""

    @staticmethod
    def forward(ctx, input: torch.Tensor) -> tuple[torch.Tensor, ...]:
        output = [torch.zeros_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input.contiguous())
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads: torch.Tensor) -> torch.Tensor:
        all_grads = torch.stack(grads)
        dist.all_reduce(all_grads, op=dist.ReduceOp.SUM)
        return all_grads[dist.get_rank()]


class NT_Xent(torch.nn.Module):
    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, z_i: torch.Tensor, z_j: torch.Tensor) -> torch.Tensor:
        # local anchors against the positives and negatives of all ranks; DDP averages the local means
        z_all = torch.cat(GatherLayer.apply(z_j), dim=0)
        logits = F.normalize(z_i) @ F.normalize(z_all).t() / self.temperature
        labels = torch.arange(z_i.size(0), device=z_i.device) + dist.get_rank() * z_i.size(0)
        return F.cross_entropy(logits, labels)
