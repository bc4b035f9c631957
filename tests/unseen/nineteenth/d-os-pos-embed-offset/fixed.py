"""Video transformer on sequence shards (written from memory of hpcaitech/Open-Sora)."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def split_sequence(x, group, dim=1):
    """Every rank of the group has the whole x and keeps one part of it."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    return x.chunk(world, dim=dim)[rank].contiguous()


class STDiT(torch.nn.Module):
    def __init__(self, in_dim, hidden, max_tokens, blocks, sp_group):
        super().__init__()
        self.patch_proj = torch.nn.Linear(in_dim, hidden)
        self.pos_embed = torch.nn.Embedding(max_tokens, hidden)
        self.blocks = torch.nn.ModuleList(blocks)  # exchange heads and sequence by all-to-all
        self.final = torch.nn.Linear(hidden, in_dim)
        self.sp_group = sp_group

    def forward(self, patches, t_emb):
        # patches: [B, T, in_dim], T a multiple of the group size
        x = split_sequence(patches, self.sp_group)
        x = self.patch_proj(x)
        start = dist.get_rank(self.sp_group) * x.size(1)
        pos = torch.arange(start, start + x.size(1), device=x.device)
        x = x + self.pos_embed(pos).unsqueeze(0)
        for block in self.blocks:
            x = block(x, t_emb, self.sp_group)
        return self.final(x)


def train_step(model: DDP, patches, noise, t, t_emb, optimizer, sp_group):
    # patches, noise, t: the same on the ranks of sp_group; the DDP wrapper averages over all ranks
    noisy = (1 - t) * patches + t * noise
    target = split_sequence(noise - patches, sp_group)
    pred = model(noisy, t_emb)
    loss = (pred - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
