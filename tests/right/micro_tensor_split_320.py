"""Plain tensors split by hand, own all-reduce of gradients."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train_step(model, opt, tokens, labels, mask, mbs):
    count = mask.sum()
    dist.all_reduce(count)
    inv = 1.0 / count
    opt.zero_grad(set_to_none=True)
    acc = torch.zeros((), device=tokens.device)
    for t, l, m in zip(tokens.split(mbs), labels.split(mbs), mask.split(mbs)):
        nll = F.cross_entropy(model(t).transpose(1, 2), l, reduction="none")
        loss = (nll * m).sum() * inv
        loss.backward()
        acc += loss.detach()
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
    opt.step()
    dist.all_reduce(acc)
    return acc


def main(model, opt, loader, mbs):
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    for tokens, labels, mask in loader:
        loss = train_step(model, opt, tokens, labels, mask.float(), mbs)
        if dist.get_rank() == 0:
            print(loss.item())
