# lightly-ai/lightly, issue 1977 / pull request 1980 - https://github.com/lightly-ai/lightly/pull/1980 (read)
# The cross-correlation matrix is averaged over processes with the plain all_reduce, which autograd does not
# see: each process keeps 1/world_size of its gradient and DDP divides a second time.
"""Barlow Twins loss over the global batch; the model is wrapped in DDP."""
import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel as DDP


class BarlowTwinsLoss(torch.nn.Module):
    def __init__(self, dim, lambda_param=5e-3):
        super().__init__()
        self.lambda_param = lambda_param
        self.bn = torch.nn.SyncBatchNorm(dim, affine=False)

    def forward(self, z_a, z_b):
        z_a, z_b = self.bn(z_a), self.bn(z_b)  # statistics of the global batch
        c = z_a.t() @ z_b / z_a.size(0)
        # mean over the global batch; all processes have the same batch size
        c = c / dist.get_world_size()
        c = all_reduce(c)
        invariance = (torch.diagonal(c) - 1).pow(2).sum()
        off_diagonal = c - torch.diag_embed(torch.diagonal(c))
        return invariance + self.lambda_param * off_diagonal.pow(2).sum()


def train(model, dim, local_rank, loader, optimizer):
    model = DDP(model, device_ids=[local_rank])
    criterion = BarlowTwinsLoss(dim).cuda()
    for (x0, x1), _ in loader:
        loss = criterion(model(x0), model(x1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
