"""One step of an engine that reduces gradients in buckets at the boundary of an accumulation."""

import torch
import torch.distributed as dist


class Engine:
    def __init__(self, module, optimizer, dp_group, accumulation):
        self.module, self.optimizer = module, optimizer
        self.dp_group, self.accumulation = dp_group, accumulation
        self.micro_steps = 0

    def backward(self, loss):
        loss = loss / self.accumulation
        loss.backward()
        self.micro_steps += 1
        if self.micro_steps % self.accumulation == 0:
            self.reduce_gradients()

    def reduce_gradients(self):
        grads = [p.grad for p in self.module.parameters() if p.requires_grad and p.grad is not None]
        if not grads:
            return
        flat = torch.cat([grad.flatten() for grad in grads])
        flat.div_(dist.get_world_size(group=self.dp_group))
        dist.all_reduce(flat, group=self.dp_group)
        offset = 0
        for grad in grads:
            grad.copy_(flat[offset : offset + grad.numel()].view_as(grad))
            offset += grad.numel()

    def step(self):
        if self.micro_steps % self.accumulation == 0:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
