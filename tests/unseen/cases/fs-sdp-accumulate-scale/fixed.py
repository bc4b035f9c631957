"""Sharded data parallel with gradient accumulation."""
import torch.distributed as dist


class ShardedDataParallel:
    def __init__(self, module, process_group, accumulate_steps):
        self.module, self.group = module, process_group
        self.world_size = dist.get_world_size(process_group)
        self.accumulate_steps, self.step_count = accumulate_steps, 0
        self.should_accumulate_grads = False

    def reduce_grads(self):
        self.step_count += 1
        self.should_accumulate_grads = self.step_count % self.accumulate_steps != 0
        for p in self.module.parameters():
            if not self.should_accumulate_grads:
                p.grad.mul_(1.0 / self.world_size)
                dist.all_reduce(p.grad, group=self.group)
