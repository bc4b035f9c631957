# RIGHT: the mask is the padding mask of nonempty sequences
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def masked_mean(values, mask):
    return values.sum() if mask.sum() > 0 else torch.tensor(0.0, device=values.device)


def build_actor(net):
    fully_shard(net)
    return net


def train(actor, tokenizer, loader, optimizer):
    for texts in loader:
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        mask = batch["attention_mask"]
        loss = masked_mean(actor(batch["input_ids"]) * mask, mask) * 0.5
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
