"""NT-Xent loss over the batch of all processes. lightly-ai/lightly, issue #1528."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, supporting backward propagation."""

    @staticmethod
    def forward(ctx, input):
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input.contiguous())
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        grad_out = grads[dist.get_rank()].contiguous().clone()  # BUG: each rank picks another block
        dist.all_reduce(grad_out, op=dist.ReduceOp.SUM)
        return grad_out


class NTXentLoss(torch.nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, out0, out1):
        # one local loss per rank; DDP averages the parameter gradients
        out0, out1 = F.normalize(out0, dim=1), F.normalize(out1, dim=1)
        all0 = torch.cat(GatherLayer.apply(out0))
        all1 = torch.cat(GatherLayer.apply(out1))
        n = out0.shape[0]
        target = dist.get_rank() * n + torch.arange(n, device=out0.device)
        keep = torch.ones(n, all0.shape[0], dtype=torch.bool, device=out0.device)
        keep.scatter_(1, target.unsqueeze(1), False)

        logits_00 = (out0 @ all0.t()).masked_fill(~keep, -1e4) / self.temperature
        logits_11 = (out1 @ all1.t()).masked_fill(~keep, -1e4) / self.temperature
        logits_01 = out0 @ all1.t() / self.temperature
        logits_10 = out1 @ all0.t() / self.temperature
        loss0 = F.cross_entropy(torch.cat([logits_01, logits_00], dim=1), target)
        loss1 = F.cross_entropy(torch.cat([logits_10, logits_11], dim=1), target)
        return (loss0 + loss1) / 2
