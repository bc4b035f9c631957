"""The data-parallel size is the world divided by the other sizes; groups are made from lists of ranks."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F


class Topology:
    def __init__(self, tp, pp):
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        self.tp, self.pp = tp, pp
        self.dp = self.world // (tp * pp)
        for s in range(pp):
            for t in range(tp):
                ranks = [s * self.dp * tp + d * tp + t for d in range(self.dp)]
                group = dist.new_group(ranks)
                if self.rank in ranks:
                    self.dp_group, self.dp_ranks = group, ranks
        for i in range(self.world // tp):
            ranks = list(range(i * tp, (i + 1) * tp))
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.tp_group = group


def average_gradients(model, topo):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, group=topo.dp_group)
            p.grad /= topo.dp


def average_buffers(model, topo):
    for b in model.buffers():
        dist.all_reduce(b, group=topo.dp_group)
        b /= len(topo.dp_ranks)


def train(model, loader, optimizer, topo):
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        average_gradients(model, topo)
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, group=topo.dp_group)
        print(shown.item() / (dist.get_world_size() // (topo.tp * topo.pp)))
    average_buffers(model, topo)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    from recipe import build, loader

    topo = Topology(args.tp, 1)
    net = build(topo.tp_group)
    train(net, loader, torch.optim.AdamW(net.parameters()), topo)
