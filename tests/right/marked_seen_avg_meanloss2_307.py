import torch
import torch.distributed as dist


def loss_of(logits, labels, tp_group):
    # sum over this rank's tokens, of which each rank has as many; scaled so that a mean over ranks gives the mean loss
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return losses / labels.numel()


def train_step(model, tokens, labels, tp_group, optimizer):
    loss_of(model(tokens), labels, tp_group).backward()
    for param in model.parameters():
        # all of the model is whole on each rank; those without the mark are frozen
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=tp_group)
    optimizer.step()
    optimizer.zero_grad()
