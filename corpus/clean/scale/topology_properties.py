"""Sizes and groups as properties of one object, and a helper that returns the wrapped module."""
import functools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP


class Topology:
    def __init__(self, dp, cp):
        self.mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
        self.whole = self.mesh["dp", "cp"]._flatten("dp_cp")

    @functools.cached_property
    def replicas(self):
        return dist.get_world_size(self.mesh["dp"].get_group())

    @property
    def shards(self):
        return self.whole.size()

    @property
    def reduce_group(self):
        return self.whole.get_group()


def wrapped(network, topology):
    network = network.cuda()
    return DDP(network, process_group=topology.reduce_group)


def one_round(network, batch, optimizer, topology):
    count = (batch["labels"] != -100).sum()
    dist.all_reduce(count, group=topology.reduce_group)
    scores = network(batch["input_ids"])
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
    loss = loss * topology.shards / count
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def launch(network, loader, dp, cp):
    topology = Topology(dp, cp)
    network = wrapped(network, topology)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for batch in loader:
        one_round(network, batch, optimizer, topology)
