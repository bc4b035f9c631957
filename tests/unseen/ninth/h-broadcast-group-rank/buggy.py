"""Multi-view training: the ranks of a scene group render views of one scene code."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class SceneGroups:
    size: int
    mine: dist.ProcessGroup = None

    def __post_init__(self):
        for start in range(0, dist.get_world_size(), self.size):
            ranks = list(range(start, start + self.size))
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                self.mine = group

    @property
    def leader(self):
        return dist.get_global_rank(self.mine, 0)


class GroupBroadcast(torch.autograd.Function):
    """All ranks get the tensor of `src`, which gets the sum of their gradients."""

    @staticmethod
    def forward(ctx, tensor, src, group):
        ctx.src, ctx.group = src, group
        ctx.rank = dist.get_rank(group)  # BUG
        out = tensor.contiguous().clone()
        dist.broadcast(out, src=src, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.reduce(grad, dst=ctx.src, group=ctx.group)
        if ctx.rank != ctx.src:
            grad.zero_()
        return grad, None, None


class SceneModel(nn.Module):
    def __init__(self, encoder, renderer, groups):
        super().__init__()
        self.encoder, self.renderer = encoder, renderer
        self.groups = groups

    def forward(self, reference, rays):
        code = self.encoder(reference)
        code = GroupBroadcast.apply(code, self.groups.leader, self.groups.mine)
        return self.renderer(code, rays)


class SceneSampler(torch.utils.data.Sampler):
    """Ranks of one group walk through the same scenes."""

    def __init__(self, scenes, group_index, group_count, seed=0):
        self.scenes, self.index, self.count, self.seed = scenes, group_index, group_count, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.scenes // self.count

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.scenes, generator=generator).tolist()
        order = order[: len(self) * self.count]
        return iter(order[self.index :: self.count])


def pick_rays(batch, rank_in_group, device):
    views = batch["rays"].size(1)
    rays = batch["rays"][:, rank_in_group % views].to(device)
    colors = batch["colors"][:, rank_in_group % views].to(device)
    return batch["reference"].to(device), rays, colors


def train(encoder, renderer, loader, sampler, groups, device, epochs, lr=1e-4):
    model = DDP(SceneModel(encoder, renderer, groups).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            reference, rays, colors = pick_rays(batch, groups.mine.rank(), device)
            loss = F.mse_loss(model(reference, rays), colors)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
