"""Megatron's buffers: parameters go by `allreduce` to the group of experts or to the dense one, all divided by dp."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Bucket:
    def __init__(self, params, group, scale):
        self.params, self.group, self.scale = params, group, scale
        n = sum(p.numel() for p in params)
        self.data = torch.zeros(n, dtype=torch.float32, device="cuda")
        at = 0
        for p in params:
            p.main_grad = self.data[at : at + p.numel()].view(p.shape)
            at += p.numel()
        self.handle = None

    def start(self):
        self.data *= self.scale
        self.handle = dist.all_reduce(self.data, group=self.group, async_op=True)

    def finish(self):
        self.handle.wait()
        self.handle = None


class Buffers:
    def __init__(self, model):
        dense, experts = [], []
        for p in model.parameters():
            if not p.requires_grad:
                continue
            (dense if getattr(p, "allreduce", True) else experts).append(p)
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        scale = 1.0 / parallel_state.get_data_parallel_world_size(with_context_parallel=True)
        self.buckets = [Bucket(dense, group, scale)]
        if experts:
            self.buckets.append(Bucket(experts, parallel_state.get_expert_data_parallel_group(), scale))
        for p in dense + experts:
            p.register_post_accumulate_grad_hook(self.accumulate)

    @staticmethod
    def accumulate(p):
        p.main_grad.add_(p.grad)
        p.grad = None

    def sync(self):
        for b in self.buckets:
            b.start()
        for b in reversed(self.buckets):
            b.finish()

    def zero(self):
        for b in self.buckets:
            b.data.zero_()


def step(buffers, run_backward, optimizer):
    buffers.zero()
    run_backward()
    buffers.sync()
    optimizer.step()
