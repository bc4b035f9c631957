"""Mean over the tokens of all data-parallel ranks without a wrapper: gradients are summed, the count is global."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def train_step(model, optimizer, batch, dp_group):
    labels = batch["labels"]
    logits = model(batch["input_ids"])
    token_loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), reduction="none")
    mask = batch["loss_mask"].view(-1).float()
    total = mask.sum()
    dist.all_reduce(total, group=dp_group)
    loss = (token_loss * mask).sum() / total
    loss.backward()
    for param in model.parameters():
        if param.grad is None:
            continue
        dist.all_reduce(param.grad, op=dist.ReduceOp.SUM, group=dp_group)
    optimizer.step()
    optimizer.zero_grad()
