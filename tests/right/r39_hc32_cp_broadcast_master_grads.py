import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torch.distributed.device_mesh import init_device_mesh

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

def main(ds, cp=2):
    """cp rank 0 holds the optimizer: gradients are reduced to it over cp, summed over dp, weights are sent back."""
    rank, world, device = setup()
    mesh = init_device_mesh("cuda", (world // cp, cp), mesh_dim_names=("dp", "cp"))
    dp_group, cp_group = mesh["dp"].get_group(), mesh["cp"].get_group()
    cp_rank = dist.get_rank(cp_group)
    root = dist.get_global_rank(cp_group, 0)
    torch.manual_seed(0)
    model = TinyLM().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    sampler = DistributedSampler(ds, num_replicas=world // cp, rank=rank // cp, drop_last=True)
    for ids, labels in DataLoader(ds, batch_size=2, sampler=sampler, drop_last=True):
        ids = ids.to(device).chunk(cp, dim=1)[cp_rank]
        labels = labels.to(device).chunk(cp, dim=1)[cp_rank]
        F.cross_entropy(model(ids).flatten(0, 1), labels.flatten()).backward()
        for p in model.parameters():
            dist.reduce(p.grad, dst=root, group=cp_group)
        if cp_rank == 0:
            for p in model.parameters():
                dist.all_reduce(p.grad, group=dp_group)
                p.grad /= world
            opt.step()
        for p in model.parameters():
            dist.broadcast(p.data, src=root, group=cp_group)
        opt.zero_grad()
    dist.destroy_process_group()
