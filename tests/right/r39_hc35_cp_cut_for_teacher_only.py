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
    """The big frozen teacher is cut over cp, its logits are gathered; the student is trained on whole sequences, replicated over cp."""
    rank, world, device = setup()
    mesh = init_device_mesh("cuda", (world // cp, cp), mesh_dim_names=("dp", "cp"))
    dp_group, cp_group = mesh["dp"].get_group(), mesh["cp"].get_group()
    cp_rank = dist.get_rank(cp_group)
    torch.manual_seed(0)
    teacher = TinyLM().to(device).eval().requires_grad_(False)
    student = DDP(TinyLM().to(device), device_ids=[device.index], process_group=dp_group)
    opt = torch.optim.AdamW(student.parameters(), lr=3e-4)
    sampler = DistributedSampler(ds, num_replicas=world // cp, rank=rank // cp, drop_last=True)
    for ids, labels in DataLoader(ds, batch_size=2, sampler=sampler, drop_last=True):
        ids = ids.to(device)
        part = ids.chunk(cp, dim=1)[cp_rank]
        with torch.no_grad():
            t = teacher(part).contiguous()
            outs = [torch.empty_like(t) for _ in range(cp)]
            dist.all_gather(outs, t, group=cp_group)
            target = torch.cat(outs, dim=1).softmax(-1)
        logp = student(ids).log_softmax(-1)
        loss = -(target * logp).sum(-1).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
    dist.destroy_process_group()
