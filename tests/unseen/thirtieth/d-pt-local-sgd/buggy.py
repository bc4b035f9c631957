"""Post-local SGD on top of DDP: parameters are averaged globally once in a while."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel as DDP


def average_parameters(params, process_group):
    params = list(params)
    flat = torch.cat([p.data.reshape(-1) for p in params])
    flat /= dist.get_world_size(process_group)
    dist.all_reduce(flat, group=process_group)
    offset = 0
    for p in params:
        p.data.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


class PeriodicModelAverager:
    def __init__(self, period, warmup_steps=0, process_group=None):
        self.period = period
        self.warmup_steps = warmup_steps
        self.process_group = process_group
        self.step = 0

    def average_parameters(self, params):
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters(params, self.process_group)
        self.step += 1


class PostLocalSGDOptimizer(torch.optim.Optimizer):
    def __init__(self, optim, averager):
        self.optim = optim
        self.param_groups = self.optim.param_groups
        self.averager = averager

    @property
    def state(self):
        return self.optim.state

    def state_dict(self):
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict):
        self.averager.step = state_dict.pop("step")
        self.optim.load_state_dict(state_dict)

    def step(self):
        self.optim.step()
        for param_group in self.param_groups:
            for param in param_group["params"]:
                self.averager.average_parameters([param])  # BUG

    def zero_grad(self, set_to_none=True):
        self.optim.zero_grad(set_to_none=set_to_none)


def train(model, loader, criterion, local_rank, args):
    world = dist.group.WORLD
    subgroup, _ = dist.new_subgroups(group_size=args.gpus_per_node)
    model = DDP(model.cuda(local_rank), device_ids=[local_rank])
    state = PostLocalSGDState(
        process_group=world, subgroup=subgroup, start_localSGD_iter=args.warmup_steps
    )
    model.register_comm_hook(state, post_localSGD_hook)

    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9),
        PeriodicModelAverager(args.period, args.warmup_steps, world),
    )
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        for images, target in loader:
            images, target = images.cuda(local_rank), target.cuda(local_rank)
            loss = criterion(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
