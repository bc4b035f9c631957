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
    """The backbone is frozen and runs on a slice; the trained head sees the whole sequence on every cp rank."""
    rank, world, device = setup()
    mesh = init_device_mesh("cuda", (world // cp, cp), mesh_dim_names=("dp", "cp"))
    dp_group, cp_group = mesh["dp"].get_group(), mesh["cp"].get_group()
    cp_rank = dist.get_rank(cp_group)
    torch.manual_seed(0)
    backbone = TinyLM().to(device).eval().requires_grad_(False)
    head = DDP(nn.Linear(32000, 10).to(device), device_ids=[device.index], process_group=dp_group)
    opt = torch.optim.AdamW(head.parameters(), lr=3e-4)
    sampler = DistributedSampler(ds, num_replicas=world // cp, rank=rank // cp, drop_last=True)
    for ids, labels in DataLoader(ds, batch_size=2, sampler=sampler, drop_last=True):
        ids = ids.to(device).chunk(cp, dim=1)[cp_rank]
        with torch.no_grad():
            h = backbone(ids).contiguous()
            parts = [torch.empty_like(h) for _ in range(cp)]
            dist.all_gather(parts, h, group=cp_group)
        full = torch.cat(parts, dim=1)
        loss = F.cross_entropy(head(full.mean(1)), labels.to(device))
        loss.backward()
        opt.step()
        opt.zero_grad()
    dist.destroy_process_group()
