import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel as FSDP




def train(model, loader, opt, mesh):
    ws = dist.get_world_size()
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        n = torch.tensor(float(len(y)), device=y.device)
        t = n.clone()
        dist.all_reduce(t)
        loss = loss * (n / t)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()
