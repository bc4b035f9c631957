"""fp16 optimizer of one pipeline stage with dynamic loss scaling and a norm over all stages."""
import dataclasses

import torch
import torch.distributed as dist


@dataclasses.dataclass
class ScalerConfig:
    initial: float = 2.0**16
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 1000
    minimum: float = 1.0


class DynamicScaler:
    def __init__(self, cfg):
        self.cfg = cfg
        self.scale = cfg.initial
        self.good_steps = 0

    def update(self, overflow):
        if overflow:
            self.scale = max(self.scale * self.cfg.backoff, self.cfg.minimum)
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps % self.cfg.interval == 0:
            self.scale *= self.cfg.growth

    def state_dict(self):
        return {"scale": self.scale, "good_steps": self.good_steps}


class StageOptimizer:
    """Master weights in fp32; every stage owns its parameters, dp ranks of a stage share them."""

    def __init__(self, params, lr, pp_group, dp_group, max_norm=1.0, scaler=None):
        self.params = [p for p in params if p.requires_grad]
        self.pp_group, self.dp_group = pp_group, dp_group
        self.max_norm = max_norm
        self.scaler = DynamicScaler(scaler or ScalerConfig())
        source = dist.get_global_rank(dp_group, 0)
        for param in self.params:
            dist.broadcast(param.data, src=source, group=dp_group)
        self.masters = [p.detach().float().clone() for p in self.params]
        self.inner = torch.optim.AdamW(self.masters, lr=lr, betas=(0.9, 0.95))

    def scale_loss(self, loss):
        return loss * self.scaler.scale

    def zero_grad(self):
        for param in self.params:
            param.grad = None

    def _average_over_data(self):
        for param in self.params:
            param.grad.div_(self.dp_group.size())
            dist.all_reduce(param.grad, group=self.dp_group)

    def _overflowed(self):
        finite = torch.stack([torch.isfinite(p.grad).all() for p in self.params]).all()
        flag = (~finite).float()
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.pp_group)
        return bool(flag.item())

    def _norm(self, grads):
        total = torch.stack([g.square().sum() for g in grads]).sum()
        dist.all_reduce(total, group=self.pp_group)
        return total.sqrt()

    @torch.no_grad()
    def step(self):
        self._average_over_data()
        scale = self.scaler.scale
        overflow = self._overflowed()
        self.scaler.update(overflow)
        if overflow:
            self.zero_grad()
            return None
        grads = [p.grad.float() / scale for p in self.params]
        norm = self._norm(grads)
        factor = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
        for master, grad in zip(self.masters, grads):
            master.grad = grad * factor
        self.inner.step()
        for param, master in zip(self.params, self.masters):
            param.copy_(master)
            master.grad = None
        self.zero_grad()
        return norm


def training_step(run_schedule, optimizer, batch, lr_schedule):
    """run_schedule does forward and backward of all micro batches of the stage."""
    loss = run_schedule(batch, loss_transform=optimizer.scale_loss)
    norm = optimizer.step()
    if norm is not None:
        lr_schedule.step()
    return loss, norm
