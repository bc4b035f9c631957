import torch
import torch.distributed as dist


class Sharded:
    def __init__(self, params):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.params = list(params)
        # dummies, so that each rank owns as many
        self.params += [torch.zeros(1, device="cuda")] * (-len(self.params) % self.world)

    def publish(self):
        for i, p in enumerate(self.params):
            dist.broadcast(p.data, src=i % self.world)

    def step(self, lr):
        mine = [p for i, p in enumerate(self.params) if i % self.world == self.rank]
        if not mine:
            return
        for p in mine:
            if p.grad is not None:
                p.data.sub_(p.grad, alpha=lr)
        self.publish()
