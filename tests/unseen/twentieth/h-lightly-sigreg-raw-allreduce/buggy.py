# lightly, pull 1923 (issue 1920): the sums of the characteristic function need an all_reduce that autograd knows;
# with the in-place one and DDP's average the gradient is 1/world_size of the global-batch gradient.
"""SIGReg loss of LeJEPA over the global batch."""
import torch
from torch import distributed as torch_dist
from torch import nn
from torch.distributed import nn as torch_dist_nn
from torch.nn.parallel import DistributedDataParallel


class SIGReg(nn.Module):
    def __init__(self, knots: int = 17, t_max: float = 3.0, num_vectors: int = 256):
        super().__init__()
        self.num_vectors = num_vectors
        t = torch.linspace(0, t_max, knots)
        self.register_buffer("t", t)
        self.register_buffer("phi", torch.exp(-t.square() / 2.0))

    def forward(self, proj: torch.Tensor) -> torch.Tensor:
        A = torch.randn(proj.shape[-1], self.num_vectors, device=proj.device)
        torch_dist.broadcast(A, src=0)
        A = A.div_(A.norm(p=2, dim=0))
        x_t = (proj @ A).unsqueeze(-1) * self.t  # (samples of this rank, vectors, knots)
        num_samples = proj.shape[0] * torch_dist.get_world_size()
        cos_sum = x_t.cos().sum(-3)
        sin_sum = x_t.sin().sum(-3)
        torch_dist.all_reduce(cos_sum)  # BUG: not part of the graph, backward sees the local samples only
        torch_dist.all_reduce(sin_sum)
        err = (cos_sum / num_samples - self.phi).square() + (sin_sum / num_samples).square()
        return err.mean()


def training_step(model: DistributedDataParallel, criterion: SIGReg, optimizer, views):
    optimizer.zero_grad()
    loss = criterion(model(views))
    loss.backward()
    optimizer.step()
    return loss.detach()
