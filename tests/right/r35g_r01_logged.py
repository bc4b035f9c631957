import torch
import torch.distributed as dist
import torch.nn.functional as F


def log_losses(writer, loss, loss_mask, rolled_mask, step):
    per_main = loss.detach() * (rolled_mask.sum() / loss_mask.sum())
    writer.add_scalar("mtp/loss", per_main.item(), step)


def finalize(model, num_tokens):
    dist.all_reduce(num_tokens)
    for p in model.parameters():
        p.grad.div_(num_tokens)
