"""Negatives of all ranks: gathered without gradient in one function, the own block put back in another."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


@torch.no_grad()
def gather_blocks(x):
    blocks = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, x.detach().contiguous())
    return blocks


def with_own(blocks, own):
    """The list with the block of this rank, which has its graph, in its place."""
    r = dist.get_rank()
    return [*blocks[:r], own, *blocks[r + 1 :]]


class InBatch(nn.Module):
    def __init__(self, temperature=0.05):
        super().__init__()
        self.temperature = temperature

    def gather(self, x):
        blocks = gather_blocks(x)
        return torch.cat(with_own(blocks, x))

    def forward(self, query, passage):
        query, passage = F.normalize(query, dim=-1), F.normalize(passage, dim=-1)
        q, p = self.gather(query), self.gather(passage)
        scores = q @ p.t() / self.temperature
        return F.cross_entropy(scores, torch.arange(len(q), device=q.device))


class DPR(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.loss = encoder, InBatch()

    def forward(self, query, passage):
        # Tevatron: DDP averages gradients that are parts of a sum
        return self.loss(self.encoder(**query), self.encoder(**passage)) * dist.get_world_size()


def train(encoder, loader):
    model = nn.parallel.DistributedDataParallel(DPR(encoder))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for query, passage in loader:
        loss = model(query, passage)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item() / dist.get_world_size())
