"""tensor.split micro-batches with FSDP2, AVG reduction and the world size in the scale."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, lr, micro):
        self.model = fully_shard(model)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.micro = micro

    def step(self, ids, labels):
        valid = labels != -100
        num = valid.sum()
        dist.all_reduce(num)
        scale = dist.get_world_size() / num
        for i, l in zip(ids.split(self.micro), labels.split(self.micro)):
            logits = self.model(i)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), l.flatten(), ignore_index=-100, reduction="sum") * scale
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad()
        return norm
