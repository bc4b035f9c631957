"""Self-supervised contrastive loss with negatives from all devices."""
# Source: lightly-ai/lightly issue 1528 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, supporting backward propagation."""

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        (input,) = ctx.saved_tensors
        grad_out = torch.empty_like(input)
        all_grads = torch.stack(grads)
        dist.all_reduce(all_grads, op=dist.ReduceOp.SUM)
        grad_out[:] = all_grads[dist.get_rank()]
        return grad_out


class NTXentLoss(nn.Module):
    def __init__(self, temperature=0.5, gather_distributed=False):
        super().__init__()
        self.temperature = temperature
        self.use_distributed = gather_distributed and world_size() > 1

    def forward(self, out0, out1):
        device, batch_size = out0.device, out0.size(0)
        out0, out1 = F.normalize(out0, dim=1), F.normalize(out1, dim=1)
        if self.use_distributed:
            out0_large = torch.cat(GatherLayer.apply(out0), 0)
            out1_large = torch.cat(GatherLayer.apply(out1), 0)
            diag_mask = torch.zeros(batch_size, out0_large.size(0), dtype=torch.bool, device=device)
            rows = torch.arange(batch_size, device=device)
            diag_mask[rows, rows + rank() * batch_size] = True
        else:
            out0_large, out1_large = out0, out1
            diag_mask = torch.eye(batch_size, device=device, dtype=torch.bool)

        logits_00 = (out0 @ out0_large.t() / self.temperature)[~diag_mask].view(batch_size, -1)
        logits_11 = (out1 @ out1_large.t() / self.temperature)[~diag_mask].view(batch_size, -1)
        logits_01 = out0 @ out1_large.t() / self.temperature
        logits_10 = out1 @ out0_large.t() / self.temperature
        logits = torch.cat([torch.cat([logits_01, logits_00], 1), torch.cat([logits_10, logits_11], 1)])
        labels = torch.arange(batch_size, device=device) + rank() * batch_size
        return F.cross_entropy(logits, labels.repeat(2))
