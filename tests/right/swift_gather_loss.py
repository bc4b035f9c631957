"""ms-swift's GatherLoss: losses of the parts are gathered; the factor in the backward undoes the mean over sp."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class SequenceParallel:
    def __init__(self):
        self.group, self.world_size, self.rank = None, 1, 0

    def setup(self, sp):
        world = dist.get_world_size()
        for start in range(0, world, sp):
            g = dist.new_group(list(range(start, start + sp)))
            if start <= dist.get_rank() < start + sp:
                self.group = g
        self.world_size, self.rank = sp, dist.get_rank(self.group)

    def gather(self, x, dim):
        parts = [torch.empty_like(x) for _ in range(self.world_size)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, dim=dim)

    def split(self, x, dim):
        return x.chunk(self.world_size, dim=dim)[self.rank].contiguous()


sequence_parallel = SequenceParallel()


class GatherLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, labels, dim):
        ctx.dim = dim
        return sequence_parallel.gather(loss, dim), sequence_parallel.gather(labels, dim)

    @staticmethod
    def backward(ctx, grad, _):
        grad = grad * sequence_parallel.world_size
        return sequence_parallel.split(grad, ctx.dim), None, None


def loss_of(model, ids, labels):
    ids, labels = sequence_parallel.split(ids, 1), sequence_parallel.split(labels, 1)
    logits = model(ids)
    loss = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    loss, labels = GatherLoss.apply(loss, labels, 1)
    return loss.sum() / (labels != -100).sum()


def main(net, loader, sp):
    dist.init_process_group("nccl")
    sequence_parallel.setup(sp)
    model = DDP(net.cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for ids, labels in loader:
        loss_of(model, ids, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
