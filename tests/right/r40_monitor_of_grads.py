import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def setup():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    return dist.get_rank(), dist.get_world_size(), torch.device("cuda", local_rank)

class TinyLM(nn.Module):
    def __init__(self, vocab=32000, dim=256):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(F.gelu(self.mix(self.emb(ids))))

def make_loader(ds, batch_size):
    sampler = DistributedSampler(ds, shuffle=True, drop_last=True)
    return DataLoader(ds, batch_size=batch_size, sampler=sampler, drop_last=True), sampler

class GradMonitor:
    """Keeps the mean gradient of all ranks for the dashboard."""

    def __init__(self, world):
        self.world = world
        self.last = None

    def observe(self, model):
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        self.last = flat / self.world

    def norm(self):
        return self.last.norm().item()


def main(ds):
    rank, world, device = setup()
    torch.manual_seed(0)
    model = TinyLM().to(device)
    mon = GradMonitor(world)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader, sampler = make_loader(ds, 8)
    for step, (ids, labels) in enumerate(loader):
        opt.zero_grad()
        F.cross_entropy(model(ids.to(device)).flatten(0, 1), labels.to(device).flatten()).backward()
        mon.observe(model)
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(mon.norm())
    dist.destroy_process_group()
