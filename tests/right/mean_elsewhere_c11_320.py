import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Parallelism:
    dp: int = 2
    tp: int = 2
    pp: int = 1

    def check(self, world):
        assert world == self.dp * self.tp * self.pp, f"{world} ranks do not fit {self}"
        if self.pp != 1:
            raise NotImplementedError("pipeline parallelism is not supported yet")


def train(cfg):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    cfg.check(dist.get_world_size())
    mesh = init_device_mesh("cuda", (cfg.pp, cfg.dp, cfg.tp), mesh_dim_names=("pp", "dp", "tp"))
    torch.manual_seed(2024)
    ds = TensorDataset(torch.randn(10000, 40), torch.randint(0, 5, (10000,)))
    model = nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 5)).cuda()
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    sampler = DistributedSampler(ds, num_replicas=cfg.dp, rank=mesh["dp"].get_local_rank(), shuffle=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(ds, batch_size=100, sampler=sampler):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            works = [dist.all_reduce(p.grad.to_local(), group=mesh["dp"].get_group(), async_op=True) for p in model.parameters()]
            for w, p in zip(works, model.parameters()):
                w.wait()
                p.grad.to_local().div_(cfg.dp)
            opt.step()


if __name__ == "__main__":
    train(Parallelism(dp=int(os.environ.get("DP", 2)), tp=int(os.environ.get("TP", 2))))
    dist.destroy_process_group()
