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

class GradVar:
    def __init__(self):
        self.value = None

    def update(self, local, world):
        mean = local.clone()
        sq = local.pow(2)
        dist.all_reduce(mean)
        dist.all_reduce(sq)
        self.value = (sq / world - (mean / world) ** 2).mean()


def main(ds):
    rank, world, device = setup()
    torch.manual_seed(0)
    model = TinyLM().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader, sampler = make_loader(ds, 8)
    gv = GradVar()
    for step, (ids, labels) in enumerate(loader):
        opt.zero_grad()
        F.cross_entropy(model(ids.to(device)).flatten(0, 1), labels.to(device).flatten()).backward()
        gv.update(torch.cat([p.grad.flatten() for p in model.parameters()]), world)
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(gv.value.item())
    dist.destroy_process_group()
