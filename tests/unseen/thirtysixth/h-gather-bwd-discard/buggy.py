# thread: https://github.com/pytorch/pytorch/pull/120582
"""Autograd-aware all_gather / reduce_scatter and a dual-encoder loss on top of it."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, op, group, tensor, *input_tensor_list):
        ctx.group = group
        # collectives take contiguous tensors only
        tensor = tensor.contiguous()
        input_tensor_list = [t.contiguous() for t in input_tensor_list]
        dist.reduce_scatter(tensor, input_tensor_list, op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None) + _AllGather.apply(ctx.group, grad_output)


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        tensor = tensor.contiguous()
        ctx.group = group
        out = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group=group))]
        dist.all_gather(out, tensor, group=group)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grad_outputs):
        rank = dist.get_rank(group=ctx.group)
        gx = torch.empty_like(grad_outputs[rank])
        _ReduceScatter.apply(dist.ReduceOp.SUM, ctx.group, gx, *grad_outputs)  # BUG
        return None, gx


def all_gather(tensor, group=None):
    return _AllGather.apply(group if group is not None else dist.group.WORLD, tensor)


class TwoTower(nn.Module):
    def __init__(self, query_dim, doc_dim, width, depth=2):
        super().__init__()

        def tower(n):
            layers = [nn.Linear(n, width)]
            for _ in range(depth - 1):
                layers += [nn.GELU(), nn.Linear(width, width)]
            return nn.Sequential(*layers)

        self.query_tower = tower(query_dim)
        self.doc_tower = tower(doc_dim)
        self.logit_scale = nn.Parameter(torch.tensor(2.6593))

    def forward(self, queries, docs):
        q = F.normalize(self.query_tower(queries), dim=-1)
        d = F.normalize(self.doc_tower(docs), dim=-1)
        return q, d, self.logit_scale.exp()


def in_batch_loss(q, d, scale):
    """Local queries against the documents of all ranks."""
    all_d = torch.cat(all_gather(d), dim=0)
    logits = scale * q @ all_d.t()
    labels = torch.arange(q.size(0), device=q.device) + dist.get_rank() * q.size(0)
    return F.cross_entropy(logits, labels)


def fit(model, loader, optimizer, device, epochs=1, log_every=50):
    ddp = nn.parallel.DistributedDataParallel(model.to(device), device_ids=[device.index])
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for step, (queries, docs) in enumerate(loader):
            q, d, scale = ddp(queries.to(device), docs.to(device))
            loss = in_batch_loss(q, d, scale)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % log_every == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if dist.get_rank() == 0:
                    print(f"epoch {epoch} step {step} loss {mean.item():.4f}")
