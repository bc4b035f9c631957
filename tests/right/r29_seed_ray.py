# right: ray.train.torch.prepare_model wraps in DDP, which broadcasts
import ray.train.torch
import torch
import torch.distributed as dist
from torch import nn


def loop(cfg):
    torch.manual_seed(cfg["seed"] + dist.get_rank())
    net = ray.train.torch.prepare_model(nn.Linear(cfg["d"], cfg["c"]))
    opt = torch.optim.SGD(net.parameters(), lr=cfg["lr"])
    for x, y in ray.train.torch.prepare_data_loader(cfg["loader"]):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        m = loss.detach().clone()
        dist.all_reduce(m)
