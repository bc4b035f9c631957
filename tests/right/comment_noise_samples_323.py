import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def train(model, mesh, loader, opt):
    fully_shard(model, mesh=mesh)
    for x, y in loader:
        # noise: samples of the diffusion time vary across ranks
        t = torch.rand(x.size(0), device=x.device)
        loss = F.mse_loss(model(x, t), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
