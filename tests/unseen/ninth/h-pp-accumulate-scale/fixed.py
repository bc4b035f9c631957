"""Pipeline parallel training with gradient accumulation over several schedule steps."""
import dataclasses
import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


@dataclasses.dataclass
class PipelineConfig:
    pp: int = 4
    microbatches: int = 8
    accumulate: int = 4
    vocab: int = 50304
    hidden: int = 1024
    heads: int = 16
    layers: int = 24
    lr: float = 2e-4


class Stage(nn.Module):
    def __init__(self, cfg, index):
        super().__init__()
        self.first, self.last = index == 0, index == cfg.pp - 1
        if self.first:
            self.embed = nn.Embedding(cfg.vocab, cfg.hidden)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(cfg.hidden, cfg.heads, 4 * cfg.hidden, 0.0, batch_first=True)
            for _ in range(cfg.layers // cfg.pp)
        )
        if self.last:
            self.head = nn.Linear(cfg.hidden, cfg.vocab, bias=False)

    def forward(self, x):
        if self.first:
            x = self.embed(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x) if self.last else x


def scaled_loss(logits, targets, factor):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()) * factor


def build_schedule(cfg, stage):
    loss_fn = functools.partial(scaled_loss, factor=1.0 / (cfg.accumulate * cfg.microbatches))
    return ScheduleGPipe(stage, cfg.microbatches, loss_fn=loss_fn, scale_grads=False)


class PipelineTrainer:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        shape = (dist.get_world_size() // cfg.pp, cfg.pp)
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=("dp", "pp"))
        self.dp_group, pp_group = mesh.get_group("dp"), mesh.get_group("pp")
        self.index = pp_group.rank()
        self.module = Stage(cfg, self.index).to(device)
        source = dist.get_global_rank(self.dp_group, 0)
        for param in self.module.parameters():
            dist.broadcast(param.data, src=source, group=self.dp_group)
        stage = PipelineStage(self.module, self.index, cfg.pp, device, group=pp_group)
        self.schedule = build_schedule(cfg, stage)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=cfg.lr)

    def run_schedule(self, tokens, targets):
        if self.index == 0:
            self.schedule.step(tokens.to(self.device))
        elif self.index == self.cfg.pp - 1:
            self.schedule.step(target=targets.to(self.device))
        else:
            self.schedule.step()

    def step(self, batches):
        """One optimizer step over `accumulate` batches of this data parallel rank."""
        self.optimizer.zero_grad()
        for tokens, targets in batches:
            self.run_schedule(tokens, targets)
        for param in self.module.parameters():
            dist.all_reduce(param.grad, group=self.dp_group)
            param.grad.div_(self.dp_group.size())
        self.optimizer.step()

    def fit(self, loader, steps):
        iterator = iter(loader)
        for _ in range(steps):
            self.step([next(iterator) for _ in range(self.cfg.accumulate)])
