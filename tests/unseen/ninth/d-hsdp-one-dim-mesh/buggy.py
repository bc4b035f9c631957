"""Hybrid sharded pretraining with FSDP2: sharded inside a node, replicated between nodes."""
import dataclasses
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


@dataclasses.dataclass
class HsdpConfig:
    replicate: int = 4
    seed: int = 5
    vocab: int = 32768
    dim: int = 2048
    heads: int = 16
    depth: int = 16
    batch_size: int = 4
    lr: float = 3e-4
    epochs: int = 1
    max_norm: float = 1.0


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg.dim, cfg.heads) for _ in range(cfg.depth))
        self.norm = nn.RMSNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parallelize(model, cfg):
    shard = dist.get_world_size() // cfg.replicate
    mesh = init_device_mesh("cuda", (cfg.replicate, shard), mesh_dim_names=("dp_replicate", "dp_shard"))
    fsdp_mesh = mesh["dp_shard"]  # BUG
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=fsdp_mesh, mp_policy=policy)
    fully_shard(model, mesh=fsdp_mesh, mp_policy=policy)
    return model


def train(cfg, dataset):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(cfg.seed)
    model = parallelize(Transformer(cfg).to(device), cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1)
    sampler = DistributedSampler(dataset, shuffle=True, seed=cfg.seed, drop_last=True)
    loader = DataLoader(dataset, cfg.batch_size, sampler=sampler, num_workers=2, drop_last=True)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for step, (tokens, targets) in enumerate(loader):
            logits = model(tokens.to(device)).flatten(0, 1).float()
            loss = F.cross_entropy(logits, targets.to(device).flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.max_norm)
            optimizer.step()
            if step % 50 == 0:
                report = loss.detach().clone()
                dist.all_reduce(report, op=dist.ReduceOp.AVG)
                if dist.get_rank() == 0:
                    print(f"epoch {epoch} step {step} loss {report.item():.4f}")
    dist.destroy_process_group()
