"""A trainer with fully_shard: the loss is the sum over tokens divided by the global token count, FSDP's averaging is switched off."""

import contextlib
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.distributed import utils as dist_utils

IGNORE_INDEX = -100


@dataclass
class TrainerConfig:
    steps: int = 1000
    local_batch_size: int = 8
    gradient_accumulation_steps: int = 2
    max_norm: float = 1.0
    lr: float = 3e-4
    validate_every: int = 100
    dims: tuple = field(default_factory=lambda: ("dp_shard", "cp"))


def cross_entropy_sum(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum", ignore_index=IGNORE_INDEX)


class Trainer:
    def __init__(self, config: TrainerConfig, model, loader, val_loader):
        self.config = config
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        self.mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=config.dims)
        self.loss_mesh = self.mesh["dp_shard", "cp"]._flatten("dp_cp")
        for block in model.layers.values():
            fully_shard(block, mesh=self.loss_mesh)
        fully_shard(model, mesh=self.loss_mesh)
        for module in model.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(1.0)
        self.model, self.loader, self.val_loader = model, loader, val_loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
        self.step = 0

    def batches(self):
        iterator = iter(self.loader)
        while True:
            group = [next(iterator) for _ in range(self.config.gradient_accumulation_steps)]
            yield [(x.to(self.device), y.to(self.device)) for x, y in group]

    def train_step(self, microbatches):
        self.optimizer.zero_grad()
        local_tokens = torch.zeros((), dtype=torch.int64, device=self.device)
        for _, labels in microbatches:
            local_tokens += (labels != IGNORE_INDEX).sum()
        global_tokens = dist_utils.dist_sum(local_tokens, self.loss_mesh)
        losses = []
        for i, (inputs, labels) in enumerate(microbatches):
            self.model.set_requires_gradient_sync(i == len(microbatches) - 1)
            loss = cross_entropy_sum(self.model(inputs), labels) / global_tokens
            loss.backward()
            losses.append(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)
        self.optimizer.step()
        loss = torch.sum(torch.stack(losses))
        global_loss = funcol.all_reduce(loss, reduceOp="sum", group=self.loss_mesh)
        return global_loss.item(), norm.full_tensor().item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        total = torch.zeros(2, device=self.device)
        for inputs, labels in self.val_loader:
            labels = labels.to(self.device)
            total[0] += cross_entropy_sum(self.model(inputs.to(self.device)), labels)
            total[1] += (labels != IGNORE_INDEX).sum()
        dist.all_reduce(total, group=self.loss_mesh.get_group())
        self.model.train()
        return (total[0] / total[1]).item()

    def train(self, profile=None):
        batches = self.batches()
        with profile if profile is not None else contextlib.nullcontext():
            while self.step < self.config.steps:
                self.step += 1
                loss, norm = self.train_step(next(batches))
                if dist.get_rank() == 0:
                    print(f"step {self.step} loss {loss:.4f} grad norm {norm:.3f}")
                if self.step % self.config.validate_every == 0:
                    print(self.validate())
