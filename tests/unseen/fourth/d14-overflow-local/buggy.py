"""Mixed-precision optimizer: overflow must be agreed on by all ranks that hold parts of the model."""
import torch
import torch.distributed as dist


class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, factor=2.0, window=1000):
        self.loss_scale, self.factor, self.window, self.good = init_scale, factor, window, 0

    def update(self, overflow):
        if overflow:
            self.loss_scale = max(self.loss_scale / self.factor, 1.0)
            self.good = 0
        else:
            self.good += 1
            if self.good % self.window == 0:
                self.loss_scale *= self.factor


class FP16Optimizer:
    """ZeRO-1: each rank of dp_group keeps the gradients of its own partition."""

    def __init__(self, optimizer, flat_params, dp_group, mp_group=None):
        self.optimizer, self.flat = optimizer, flat_params
        self.dp_group, self.mp_group = dp_group, mp_group
        self.loss_scaler = DynamicLossScaler()
        self.found_overflow = torch.zeros(1, device="cuda")
        self.dp_size = dist.get_world_size(dp_group)

    def reduce_grads(self):
        for p in self.flat:
            shard = p.grad.new_empty(p.numel() // self.dp_size)
            dist.reduce_scatter_tensor(shard, p.grad.view(-1), group=self.dp_group)
            p.shard_grad = shard.div_(self.dp_size)

    def _check_overflow(self):
        self.found_overflow.fill_(0.0)
        for p in self.flat:
            if not torch.isfinite(p.shard_grad).all():
                self.found_overflow.fill_(1.0)
                break
        if self.mp_group is not None:
            dist.all_reduce(self.found_overflow, op=dist.ReduceOp.MAX, group=self.mp_group)  # BUG
        return self.found_overflow.item() > 0

    def step(self):
        self.reduce_grads()
        overflow = self._check_overflow()
        self.loss_scaler.update(overflow)
        if overflow:
            return False
        for p in self.flat:
            p.shard_grad.div_(self.loss_scaler.loss_scale)
        self.optimizer.step()
        for p in self.flat:
            dist.all_gather_into_tensor(p.data.view(-1), p.shard, group=self.dp_group)
        return True
