# lightly-ai/lightly, issue 1528 / pull request 1531 - https://github.com/lightly-ai/lightly/issues/1528 (read)
# GatherLayer.backward returns the gradient this process computed for its own features; the gradients that
# other processes computed for them (as negatives) are dropped.
"""NT-Xent loss with negatives from all processes; the model is wrapped in DDP."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input.contiguous())
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients, op=dist.ReduceOp.SUM)
        return all_gradients[dist.get_rank()]


class NTXentLoss(torch.nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, out0, out1):
        out0, out1 = F.normalize(out0, dim=1), F.normalize(out1, dim=1)
        out0_large = torch.cat(GatherLayer.apply(out0), 0)
        out1_large = torch.cat(GatherLayer.apply(out1), 0)
        n = out0.size(0)
        own = torch.arange(n, device=out0.device) + dist.get_rank() * n
        rows = torch.arange(n, device=out0.device)

        def one_side(a, same, other):
            sim_same = a @ same.t() / self.temperature
            sim_same = sim_same.index_put((rows, own), sim_same.new_tensor(float("-inf")))
            sim_other = a @ other.t() / self.temperature
            return F.cross_entropy(torch.cat([sim_other, sim_same], dim=1), own)

        return (one_side(out0, out0_large, out1_large) + one_side(out1, out1_large, out0_large)) / 2
