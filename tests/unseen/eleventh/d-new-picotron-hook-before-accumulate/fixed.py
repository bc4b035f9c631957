"""Naive data parallelism: one all-reduce per parameter, on the last micro-batch only."""
import torch.distributed as dist
import torch.nn as nn

import picotron.process_group_manager as pgm


class DataParallelNaive(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.require_backward_grad_sync = True
        for p in self.module.parameters():
            if p.requires_grad is True:
                p.register_post_accumulate_grad_hook(self._allreduce_grads)

    def _allreduce_grads(self, param):
        if self.require_backward_grad_sync:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM, group=pgm.process_group_manager.cp_dp_group)
            param.grad /= pgm.process_group_manager.cp_dp_world_size

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


def train_step(model, data_loader, loss_fn, grad_acc_steps):
    for i in range(grad_acc_steps):
        batch = next(data_loader)
        model.require_backward_grad_sync = i == grad_acc_steps - 1
        loss = loss_fn(model(batch["input_ids"]), batch["target_ids"]) / grad_acc_steps
        loss.backward()
