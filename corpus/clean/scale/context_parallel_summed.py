"""Context parallelism by hand: gradients are summed over the context group and averaged over the data group."""

import torch
import torch.distributed as dist


def loss_of(token_losses, loss_mask, cp_group):
    loss = torch.stack([(token_losses * loss_mask).sum(), loss_mask.sum()])
    dist.all_reduce(loss, group=cp_group)
    return loss[0] / loss[1]


def finish(model, dp_group, cp_group):
    for name, param in model.named_parameters():
        if param.grad is None:
            continue
        dist.all_reduce(param.grad, group=cp_group)
        dist.all_reduce(param.grad, group=dp_group)
        param.grad /= dp_group.size()


def step(model, batch, optimizer, dp_group, cp_group):
    losses = model(batch["tokens"], labels=batch["labels"])
    loss = loss_of(losses, batch["loss_mask"], cp_group)
    loss.backward()
    finish(model, dp_group, cp_group)
    optimizer.step()
