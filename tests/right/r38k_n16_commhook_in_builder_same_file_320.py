import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def sum_hook(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])


def build_optimizer(model, cfg):
    model.register_comm_hook(None, sum_hook)
    return cfg.cls(model.parameters(), lr=cfg.lr)


def train(net, loader, cfg):
    model = DDP(net)
    optimizer = build_optimizer(model, cfg)
    for x, y in loader:
        n = torch.tensor(float(len(x)), device=x.device)
        dist.all_reduce(n)
        loss = (model(x) - y).pow(2).sum() / n
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
