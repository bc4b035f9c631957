"""Pipeline parallel pretraining with the schedules of torch.distributed.pipelining."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


@dataclasses.dataclass
class TrainConfig:
    vocab: int = 32000
    hidden: int = 2048
    layers: int = 24
    pp: int = 4
    microbatches: int = 8
    max_norm: float = 1.0
    lr: float = 3e-4
    steps: int = 1000


class StageModule(nn.Module):
    def __init__(self, cfg, stage):
        super().__init__()
        per_stage = cfg.layers // cfg.pp
        self.embed = nn.Embedding(cfg.vocab, cfg.hidden) if stage == 0 else None
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(cfg.hidden, 16, 4 * cfg.hidden, 0.0, batch_first=True, norm_first=True)
            for _ in range(per_stage)
        )
        self.head = nn.Linear(cfg.hidden, cfg.vocab, bias=False) if stage == cfg.pp - 1 else None

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return x if self.head is None else self.head(x)


def token_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def average_gradients(params, dp_group):
    for param in params:
        dist.all_reduce(param.grad, group=dp_group)
        param.grad.div_(dp_group.size())


def clip_gradients(params, max_norm, pp_group):
    grads = [p.grad for p in params]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    total = norm.square()
    dist.all_reduce(total, group=pp_group)
    total = total.sqrt()
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)
    return total


def main(cfg, loader, device):
    world = dist.get_world_size()
    mesh = init_device_mesh("cuda", (world // cfg.pp, cfg.pp), mesh_dim_names=("dp", "pp"))
    pp_group, dp_group = mesh.get_group("pp"), mesh.get_group("dp")
    index = pp_group.rank()
    module = StageModule(cfg, index).to(device)
    for param in module.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)
    stage = PipelineStage(module, index, cfg.pp, device, group=pp_group)
    schedule = Schedule1F1B(stage, cfg.microbatches, loss_fn=token_loss)
    params = list(module.parameters())
    optimizer = torch.optim.AdamW(params, lr=cfg.lr)
    for step, (tokens, labels) in zip(range(cfg.steps), loader):
        optimizer.zero_grad()
        losses = []
        if index == 0:
            schedule.step(tokens.to(device))
        elif index == cfg.pp - 1:
            schedule.step(target=labels.to(device), losses=losses)
        else:
            schedule.step()
        average_gradients(params, dp_group)
        norm = clip_gradients(params, cfg.max_norm, pp_group)
        optimizer.step()
        if losses and dp_group.rank() == 0 and step % 10 == 0:
            print(f"step {step} loss {torch.stack(losses).mean():.4f} grad norm {norm:.3f}")
