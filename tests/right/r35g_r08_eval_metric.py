import torch
import torch.distributed as dist
import torch.nn.functional as F


def eval_loss(model, batch):
    with torch.no_grad():
        losses = model(batch.x, batch.y)
        loss_mask, valid_mask = batch.loss_mask, batch.valid_mask
        loss = (losses * valid_mask).sum() / valid_mask.sum()
        coverage = valid_mask.sum() / loss_mask.sum()
        return loss * coverage


def finalize(model, num_tokens):
    dist.all_reduce(num_tokens)
    for p in model.parameters():
        p.grad.div_(num_tokens)
