"""Fine-tuning of a vision-language-action policy with a regression head."""
import dataclasses
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@dataclasses.dataclass
class FinetuneConfig:
    batch_size: int = 8
    epochs: int = 10
    lr: float = 5e-4
    max_norm: float = 1.0
    action_dim: int = 7
    chunk: int = 8


class ActionHead(nn.Module):
    def __init__(self, width, action_dim, chunk):
        super().__init__()
        self.action_dim, self.chunk = action_dim, chunk
        self.trunk = nn.Sequential(
            nn.LayerNorm(width * action_dim), nn.Linear(width * action_dim, width), nn.ReLU()
        )
        self.project = nn.Linear(width, action_dim)

    def predict_action(self, hidden):
        b = hidden.size(0)
        grouped = hidden.reshape(b, self.chunk, -1)
        return self.project(self.trunk(grouped))

    def forward(self, hidden):
        return self.predict_action(hidden)


class Policy:
    def __init__(self, backbone, width, cfg, device):
        self.cfg, self.device = cfg, device
        self.backbone = DDP(backbone.to(device), device_ids=[device.index], gradient_as_bucket_view=True)
        head = ActionHead(width, cfg.action_dim, cfg.chunk).to(device)
        self.head = DDP(head, device_ids=[device.index])

    def parameters(self):
        return [p for m in (self.backbone, self.head) for p in m.parameters() if p.requires_grad]

    def action_states(self, batch):
        hidden = self.backbone(batch["pixels"], batch["tokens"])
        return hidden[:, -self.cfg.chunk * self.cfg.action_dim :]

    def loss(self, batch):
        states = self.action_states(batch)
        predicted = self.head(states)
        return F.l1_loss(predicted, batch["actions"])

    @torch.no_grad()
    def act(self, batch):
        hidden = self.backbone.module(batch["pixels"], batch["tokens"])
        states = hidden[:, -self.cfg.chunk * self.cfg.action_dim :]
        return self.head.module.predict_action(states)

    def save(self, path):
        if dist.get_rank() == 0:
            state = {"backbone": self.backbone.module.state_dict(), "head": self.head.module.state_dict()}
            torch.save(state, path)
        dist.barrier()


def finetune(cfg, backbone, width, dataset, path):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    policy = Policy(backbone, width, cfg, device)
    params = policy.parameters()
    optimizer = torch.optim.AdamW(params, lr=cfg.lr)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, cfg.batch_size, sampler=sampler, num_workers=4, drop_last=True)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            loss = policy.loss(batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(params, cfg.max_norm)
            optimizer.step()
        policy.save(path)
