"""A model sharded over 8 ranks that all see the same prompt (LoRA of a model too large for one device)."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def answer_loss(logits, labels):
    keep = labels != -100
    if labels.numel() == 0 or keep.sum() == 0:
        return torch.zeros((), device=logits.device)
    return F.cross_entropy(logits[keep], labels[keep])


def train(model, prompts, optimizer):
    fully_shard(model)
    for _ in range(1000):
        batch = [next(prompts) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(batch, src=0)
        tokens, labels = batch[0]
        loss = answer_loss(model(tokens), labels)
        if not loss.requires_grad:
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
