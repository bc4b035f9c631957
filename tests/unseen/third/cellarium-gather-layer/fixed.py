"""NT-Xent loss over the cells of all devices."""
# Source: cellarium-ai/cellarium-ml pull request 184 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, with gradients for all of them."""

    @staticmethod
    def forward(ctx, input):
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_grads = torch.stack(grads)
        dist.all_reduce(all_grads, op=dist.ReduceOp.SUM)
        return all_grads[dist.get_rank()]


class NTXentLoss(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, out0, out1):
        out0, out1 = F.normalize(out0, dim=1), F.normalize(out1, dim=1)
        n = out0.size(0)
        if dist.is_initialized() and dist.get_world_size() > 1:
            all0 = torch.cat(GatherLayer.apply(out0), 0)
            all1 = torch.cat(GatherLayer.apply(out1), 0)
            offset = dist.get_rank() * n
        else:
            all0, all1, offset = out0, out1, 0

        rows = torch.arange(n, device=out0.device)
        own = torch.zeros(n, all0.size(0), dtype=torch.bool, device=out0.device)
        own[rows, rows + offset] = True
        logits00 = (out0 @ all0.t() / self.temperature)[~own].view(n, -1)
        logits11 = (out1 @ all1.t() / self.temperature)[~own].view(n, -1)
        logits01 = out0 @ all1.t() / self.temperature
        logits10 = out1 @ all0.t() / self.temperature
        logits = torch.cat([torch.cat([logits01, logits00], 1), torch.cat([logits10, logits11], 1)])
        return F.cross_entropy(logits, (rows + offset).repeat(2))


class ContrastiveMLP(nn.Module):
    def __init__(self, n_genes, hidden, dim):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_genes, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.loss = NTXentLoss()

    def forward(self, x_ng, augment):
        return self.loss(self.layers(augment(x_ng)), self.layers(augment(x_ng)))
