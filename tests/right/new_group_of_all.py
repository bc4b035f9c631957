"""A second communicator over all ranks, so that small sums do not wait behind the gradients."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Comm:
    def __init__(self):
        dist.init_process_group("nccl")
        self.stats_group = dist.new_group(list(range(dist.get_world_size())))
        self.cpu_group = dist.new_group(backend="gloo")

    def total(self, n):
        n = n.clone()
        dist.all_reduce(n, group=self.stats_group)
        return n

    def any(self, flag):
        t = torch.tensor([int(flag)])
        dist.all_reduce(t, op=dist.ReduceOp.MAX, group=self.cpu_group)
        return bool(t.item())


def train(net, loader, comm, stop):
    model = DDP(net.cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    world = dist.get_world_size()
    for tokens, labels in loader:
        n = comm.total((labels != -100).sum())
        logits = model(tokens)
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        (nll * world / n).backward()
        optimizer.step()
        optimizer.zero_grad()
        print((comm.total(nll.detach()) / n).item())
        if comm.any(stop()):
            break


def main(net, loader, stop):
    train(net, loader, Comm(), stop)
