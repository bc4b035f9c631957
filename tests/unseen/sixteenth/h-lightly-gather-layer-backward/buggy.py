# lightly-ai/lightly pull request 1531 (commit 80fa5b5c)
# The backward of the gather keeps only this rank's own gradient of its features; what the losses of the other
# ranks contribute through the gathered negatives is dropped.
"""NT-Xent loss with negatives from all processes; the model is wrapped in DDP."""
import torch
import torch.distributed as dist
from torch import Tensor, nn


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, supporting backward propagation."""

    @staticmethod
    def forward(ctx, input):
        input = input.contiguous()
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        grad_out = all_gradients[dist.get_rank()]  # BUG
        return grad_out


def gather(input: Tensor):
    return GatherLayer.apply(input)


def eye_rank(n: int, device) -> Tensor:
    diag_mask = torch.zeros((n, n * dist.get_world_size()), dtype=torch.bool, device=device)
    rows = torch.arange(n, device=device)
    diag_mask[rows, rows + dist.get_rank() * n] = True
    return diag_mask


class NTXentLoss(nn.Module):
    def __init__(self, temperature: float = 0.5):
        super().__init__()
        self.temperature = temperature
        self.cross_entropy = nn.CrossEntropyLoss(reduction="mean")

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        batch_size, device = out0.size(0), out0.device
        out0 = nn.functional.normalize(out0, dim=1)
        out1 = nn.functional.normalize(out1, dim=1)
        out0_large = torch.cat(gather(out0), 0)
        out1_large = torch.cat(gather(out1), 0)
        diag_mask = eye_rank(batch_size, device)
        logits_00 = out0 @ out0_large.t() / self.temperature
        logits_01 = out0 @ out1_large.t() / self.temperature
        logits_10 = out1 @ out0_large.t() / self.temperature
        logits_11 = out1 @ out1_large.t() / self.temperature
        # remove similarities of a sample to itself
        logits_00 = logits_00[~diag_mask].view(batch_size, -1)
        logits_11 = logits_11[~diag_mask].view(batch_size, -1)
        logits = torch.cat([torch.cat([logits_01, logits_00], 1), torch.cat([logits_10, logits_11], 1)], 0)
        labels = torch.arange(batch_size, device=device) + dist.get_rank() * batch_size
        return self.cross_entropy(logits, labels.repeat(2))
