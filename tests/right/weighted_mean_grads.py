"""Each rank's mean is weighted by its share of the tokens, then gradients are summed."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def share(n):
    total = n.clone()
    dist.all_reduce(total)
    return n / total.clamp(min=1)


def train(model, loader, optimizer):
    for tokens, labels in loader:
        logits = model(tokens)
        local_mean = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        weight = share((labels != -100).sum())
        local_mean.backward()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(weight)
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    from recipe import loader, net

    dist.init_process_group("nccl")
    train(net, loader, torch.optim.AdamW(net.parameters()))
