"""Gradients: sum to the leader of each node, mean among leaders, broadcast in the node."""
import torch
import torch.distributed as dist


class NodeTopology:
    def __init__(self, per_node):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.per_node = per_node
        self.leader = self.rank // per_node * per_node
        self.leaders = list(range(0, self.world, per_node))
        self.leader_group = dist.new_group(self.leaders)
        for l in self.leaders:
            group = dist.new_group(list(range(l, l + per_node)))
            if l == self.leader:
                self.node_group = group

    def mean(self, t):
        dist.reduce(t, dst=self.leader, group=self.node_group)
        if self.rank == self.leader:
            dist.all_reduce(t, group=self.leader_group)
            t /= self.world
        dist.broadcast(t, src=self.leader, group=self.node_group)


def train(model, loader, loss_fn, per_node=8):
    topo = NodeTopology(per_node)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        loss_fn(model(x), y).backward()
        for p in model.parameters():
            if p.grad is not None:
                topo.mean(p.grad)
        optimizer.step()
