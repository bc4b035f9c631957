"""Speech encoder with stochastic layer dropping, every layer sharded by FSDP."""
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.data import DataLoader, DistributedSampler


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, ffn, dropout):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, dropout, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, ffn), nn.GELU(), nn.Dropout(dropout), nn.Linear(ffn, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, padding):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


class SpeechEncoder(nn.Module):
    def __init__(self, features, dim, heads, ffn, depth, vocab, layerdrop=0.1, seed=1234):
        super().__init__()
        self.layerdrop = layerdrop
        self.front = nn.Linear(features, dim)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads, ffn, 0.1) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)
        self.drop_generator = torch.Generator().manual_seed(seed)

    def positions(self, length, dim, device):
        steps = torch.arange(length, device=device).unsqueeze(1)
        rates = torch.exp(torch.arange(0, dim, 2, device=device) * (-math.log(10000.0) / dim))
        table = torch.zeros(length, dim, device=device)
        table[:, 0::2], table[:, 1::2] = torch.sin(steps * rates), torch.cos(steps * rates)
        return table

    def forward(self, x, padding):
        x = self.front(x)
        x = x + self.positions(x.size(1), x.size(2), x.device)
        for layer in self.layers:
            chance = torch.rand(1, generator=self.drop_generator).item()
            if self.training and chance < self.layerdrop:
                continue
            x = layer(x, padding)
        return self.head(self.norm(x))


def ctc_loss(logits, lengths, targets, target_lengths):
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(log_probs, targets, lengths, target_lengths, reduction="sum", zero_infinity=True)


def train(dataset, collate, vocab, epochs, seed=7):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(seed + dist.get_rank())
    model = FSDP(
        SpeechEncoder(80, 1024, 16, 4096, 24, vocab),
        auto_wrap_policy=ModuleWrapPolicy({EncoderLayer}),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=local_rank,
        sync_module_states=True,
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed, drop_last=True)
    loader = DataLoader(dataset, 8, sampler=sampler, collate_fn=collate, num_workers=4, drop_last=True)
    model.train()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            symbols = batch["target_lengths"].sum().float()
            dist.all_reduce(symbols)
            logits = model(batch["features"], batch["padding"])
            total = ctc_loss(logits, batch["lengths"], batch["targets"], batch["target_lengths"])
            (total / symbols * dist.get_world_size()).backward()
            model.clip_grad_norm_(5.0)
            optimizer.step()
            optimizer.zero_grad()
