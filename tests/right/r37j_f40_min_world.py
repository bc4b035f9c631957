import torch
import torch.distributed as dist


class Sharded:
    """The work group is cut to as many ranks as there are blocks; others never make this object."""

    def __init__(self, blocks, group):
        self.blocks, self.group = blocks, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)

    @classmethod
    def build(cls, blocks):
        size = min(len(blocks), dist.get_world_size())
        group = dist.new_group(list(range(size)))
        return cls(blocks, group) if dist.get_rank() < size else None

    def publish(self):
        for i, b in enumerate(self.blocks):
            dist.broadcast(b, group=self.group, group_src=i % self.world)

    def step(self, lr):
        mine = [b for i, b in enumerate(self.blocks) if i % self.world == self.rank]
        if not mine:
            return
        for b in mine:
            b.sub_(b.grad, alpha=lr)
        self.publish()
