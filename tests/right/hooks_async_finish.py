"""Gradients are summed by asynchronous hooks; `finish` waits for all of them before the step."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


class OverlapReducer:
    def __init__(self, module, group=None):
        self.module = module
        self.group = group
        self.world = dist.get_world_size(group)
        self.pending = []
        self.enabled = True
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._launch)

    def _launch(self, p):
        if not self.enabled:
            return
        p.grad.div_(self.world)
        work = dist.all_reduce(p.grad, group=self.group, async_op=True)
        self.pending.append(work)

    def finish(self):
        while self.pending:
            self.pending.pop().wait()


def train(net, dataset, accumulate=4):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)
    reducer = OverlapReducer(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            last = (i + 1) % accumulate == 0
            reducer.enabled = last
            loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda()) / accumulate
            loss.backward()
            if last:
                reducer.finish()
                optimizer.step()
                optimizer.zero_grad()
        optimizer.zero_grad()


def main(net, dataset):
    dist.init_process_group("nccl")
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    train(net.cuda(), dataset)
