"""Data parallel training with coalesced, overlapping gradient reductions."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ViTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, in_chans, grid, patch, dim, depth, heads):
        super().__init__()
        self.patch_embed = nn.Conv2d(in_chans, dim, patch, patch)
        self.pos_embed = nn.Parameter(torch.zeros(1, (grid // patch) ** 2, dim))
        self.blocks = nn.ModuleList(ViTBlock(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.ConvTranspose2d(dim, in_chans, patch, patch)

    def forward(self, x):
        x = self.patch_embed(x)
        b, d, h, w = x.shape
        x = x.flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).transpose(1, 2).reshape(b, d, h, w)
        return self.head(x)


class BucketedReducer:
    """All-reduces gradients in buckets of roughly `bucket_bytes`, one collective per bucket."""

    def __init__(self, params, group, bucket_bytes=1 << 20):
        self.group, self.world_size = group, dist.get_world_size(group)
        self.buckets, current, size = [], [], 0
        for param in reversed(list(params)):
            current.append(param)
            size += param.numel() * param.element_size()
            if size >= bucket_bytes:
                self.buckets.append(current)
                current, size = [], 0
        if current:
            self.buckets.append(current)

    def reduce(self):
        pending = []
        for bucket in self.buckets:
            grads = [param.grad for param in bucket]
            coalesced = _flatten_dense_tensors(grads)
            coalesced.div_(self.world_size)
            work = dist.all_reduce(coalesced, op=dist.ReduceOp.SUM, group=self.group, async_op=True)
            pending.append((work, coalesced, grads))
        for work, coalesced, grads in pending:
            work.wait()
            for grad, reduced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
                grad.copy_(reduced)


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    totals = torch.zeros(2, device=device)
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        totals[0] += F.mse_loss(model(inputs), targets, reduction="sum")
        totals[1] += targets.numel()
    dist.all_reduce(totals)
    model.train()
    return (totals[0] / totals[1]).item()


def make_loader(num_samples, grid, batch_size, seed, train):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, 2, grid, grid, generator=generator)
    targets = torch.roll(inputs, shifts=1, dims=-1) * 0.9
    dataset = TensorDataset(inputs, targets)
    sampler = DistributedSampler(dataset, shuffle=train, drop_last=True)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=train), sampler


def main(grid=32, epochs=2, batch_size=8, seed=0):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    torch.manual_seed(seed)
    model = VisionTransformer(in_chans=2, grid=grid, patch=4, dim=64, depth=2, heads=4).to(device)
    reducer = BucketedReducer(model.parameters(), dist.group.WORLD, bucket_bytes=1 << 18)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    train_loader, sampler = make_loader(256, grid, batch_size, seed=1, train=True)
    val_loader, _ = make_loader(64, grid, batch_size, seed=2, train=False)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in train_loader:
            inputs, targets = inputs.to(device), targets.to(device)
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            reducer.reduce()
            optimizer.step()
        val_loss = validate(model, val_loader, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} validation loss {val_loss:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
