"""Low-communication training: local AdamW steps, outer Nesterov step over the workers."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader


@dataclass
class WorldInfo:
    local_world_size: int
    diloco_rank: int
    diloco_world_size: int


class Diloco:
    def __init__(self, config, model, group):
        self.config = config
        self.model = model
        self.group = group
        self.params_offloaded = [p.detach().cpu().clone() for p in model.parameters()]
        for p in self.params_offloaded:
            p.requires_grad_(True)
        self.outer_optimizer = torch.optim.SGD(
            self.params_offloaded, lr=config.outer_lr, momentum=0.9, nesterov=True
        )

    def _sync_pseudo_gradients(self):
        for offloaded, param in zip(self.params_offloaded, self.model.parameters()):
            delta = offloaded.detach() - param.detach().cpu()
            dist.all_reduce(delta, op=dist.ReduceOp.SUM, group=self.group)
            offloaded.grad = delta / dist.get_world_size(self.group)

    @torch.no_grad()
    def _write_back(self):
        for offloaded, param in zip(self.params_offloaded, self.model.parameters()):
            param.copy_(offloaded.to(param.device))

    def step(self):
        self._sync_pseudo_gradients()
        self.outer_optimizer.step()
        self.outer_optimizer.zero_grad()
        self._write_back()


def build_model(config, world_info, make_model):
    torch.manual_seed(config.seed)
    model = make_model(config)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.trunc_normal_(module.weight, std=0.02)
        elif isinstance(module, torch.nn.Embedding):
            torch.nn.init.normal_(module.weight, std=0.02)
    return model.cuda()


def build_loader(config, world_info, dataset):
    indices = range(world_info.diloco_rank, len(dataset), world_info.diloco_world_size)
    shard = torch.utils.data.Subset(dataset, list(indices))
    generator = torch.Generator().manual_seed(config.seed)
    return DataLoader(shard, batch_size=config.batch_size, shuffle=True, generator=generator)


def train(config, make_model, dataset, world_info, group):
    model = build_model(config, world_info, make_model)
    inner_optimizer = torch.optim.AdamW(model.parameters(), lr=config.inner_lr, betas=(0.9, 0.95))
    diloco = Diloco(config, model, group)
    loader = build_loader(config, world_info, dataset)
    step = 0
    for batch in loader:
        input_ids = batch["input_ids"].cuda()
        logits = model(input_ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), input_ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        inner_optimizer.step()
        inner_optimizer.zero_grad()
        step += 1
        if step % config.inner_steps == 0:
            diloco.step()
        if step >= config.total_steps:
            break
    return model
