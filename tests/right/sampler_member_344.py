# Right: cfg.members models are trained side by side by groups of `size` ranks; num_replicas=size, rank=rank % size, seed + rank // size is
# one number within a group.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def train_members(make_model, dataset, cfg):
    """cfg.members models are trained side by side, each by a group of ranks with its own seed."""
    world, rank = dist.get_world_size(), dist.get_rank()
    size = world // cfg.members
    groups = [dist.new_group(list(range(m * size, (m + 1) * size))) for m in range(cfg.members)]
    member = rank // size
    torch.manual_seed(cfg.seed + member)
    model = DDP(make_model().cuda(), process_group=groups[member])
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank % size, shuffle=True, seed=cfg.seed + rank // size)
    loader = DataLoader(dataset, batch_size=cfg.bs, sampler=sampler)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            opt.step()
    if rank % size == 0:
        torch.save(model.module.state_dict(), f"member{member}.pt")
