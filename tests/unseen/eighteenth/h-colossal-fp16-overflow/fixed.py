"""fp16 optimizer with dynamic loss scale for a pipelined and tensor-parallel model.

Source: hpcaitech/ColossalAI, pull request #1175. Whether a gradient overflowed is decided by each
rank for its own parameters. A stage that overflowed leaves the step, the others go on to the norm
and wait in its all-reduce; the loss scales of the stages part too.
"""
import torch
import torch.distributed as dist


class DynamicGradScaler:
    def __init__(self, scale=2.0 ** 16, window=1000):
        self.scale, self.window, self.good = scale, window, 0

    def update(self, overflow):
        if overflow:
            self.scale, self.good = max(self.scale / 2, 1.0), 0
            return
        self.good += 1
        if self.good % self.window == 0:
            self.scale *= 2


class FP16Optimizer:
    def __init__(self, params, inner, mp_group, max_norm):
        # mp_group: the tensor and pipeline ranks of this replica; each parameter on one of them
        self.params, self.inner = list(params), inner
        self.mp_group, self.max_norm = mp_group, max_norm
        self.scaler = DynamicGradScaler()
        self.found_inf = torch.zeros(1, device=self.params[0].device)

    def check_overflow(self):
        self.found_inf.zero_()
        for p in self.params:
            if p.grad is not None and not torch.isfinite(p.grad).all():
                self.found_inf.fill_(1.0)
        dist.all_reduce(self.found_inf, op=dist.ReduceOp.MAX, group=self.mp_group)
        return self.found_inf.item() > 0

    def clip(self):
        total = torch.zeros(1, device=self.found_inf.device)
        for p in self.params:
            if p.grad is not None:
                total += p.grad.float().pow(2).sum()
        dist.all_reduce(total, group=self.mp_group)
        coef = (self.max_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for p in self.params:
            if p.grad is not None:
                p.grad.mul_(coef.to(p.grad.dtype))

    def step(self):
        # gradients have been averaged over the data-parallel group
        scale, overflow = self.scaler.scale, self.check_overflow()
        self.scaler.update(overflow)
        if overflow:
            self.inner.zero_grad()
            return False
        for p in self.params:
            if p.grad is not None:
                p.grad.div_(scale)
        self.clip()
        self.inner.step()
        return True
