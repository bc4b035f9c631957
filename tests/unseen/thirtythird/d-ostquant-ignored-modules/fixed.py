"""Train rotation and smoothing matrices of a frozen model under FSDP.

Source: https://github.com/BrotherHappy/OSTQuant/issues/15 (see pytorch/pytorch issue 98281)
Wrong: all trainable parameters live in ignored_modules; FSDP does not reduce the gradients of
ignored modules, so each rank follows its own data and only rank 0's result is saved.
Repair: average their gradients by hand before the step.
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class RotateModule(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim, dtype=torch.float32))


class SmoothModule(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, dtype=torch.float32))


class MyTrainer:
    def __init__(self, model, optimizer, max_grad_norm=1.0):
        for p in model.parameters():
            p.requires_grad_(False)
        # fp32 among bf16 weights: FSDP cannot flatten them together
        self.ignored = [m for m in model.modules() if isinstance(m, (RotateModule, SmoothModule))]
        for m in self.ignored:
            for p in m.parameters():
                p.requires_grad_(True)
        self.model = FSDP(model, ignored_modules=self.ignored, use_orig_params=True)
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm

    def trainable(self):
        return [p for m in self.ignored for p in m.parameters()]

    def training_step(self, batch):
        loss = self.model(**batch).loss
        loss.backward()
        for p in self.trainable():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        torch.nn.utils.clip_grad_norm_(self.trainable(), self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        report = loss.detach()
        dist.all_reduce(report, op=dist.ReduceOp.AVG)
        return report
