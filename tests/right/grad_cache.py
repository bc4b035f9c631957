"""GradCache: representations first without graph, their gradients next, then the encoder piece by piece."""
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_plain(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    parts[dist.get_rank()] = x
    return torch.cat(parts)


def loss_of(q, p):
    q, p = gather_plain(q), gather_plain(p)
    scores = q @ p.t() / 0.05
    return F.cross_entropy(scores, torch.arange(len(q), device=q.device)) * dist.get_world_size()


@torch.no_grad()
def encode(model, pieces):
    return torch.cat([model(x) for x in pieces])


def representation_gradients(q, p):
    q, p = q.detach().requires_grad_(), p.detach().requires_grad_()
    loss = loss_of(q, p)
    loss.backward()
    return loss.detach(), q.grad, p.grad


def accumulate(model, pieces, grads, last):
    at = 0
    for i, x in enumerate(pieces):
        final = last and i == len(pieces) - 1
        with nullcontext() if final else model.no_sync():
            rep = model(x)
            g = grads[at : at + len(rep)]
            (rep * g).sum().backward()
        at += len(rep)


def train(encoder, loader, optimizer_of):
    model = DDP(encoder)
    optimizer = optimizer_of(model.parameters())
    for q_pieces, p_pieces in loader:
        q, p = encode(model, q_pieces), encode(model, p_pieces)
        loss, gq, gp = representation_gradients(q, p)
        accumulate(model, q_pieces, gq, last=False)
        accumulate(model, p_pieces, gp, last=True)
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item() / dist.get_world_size())
