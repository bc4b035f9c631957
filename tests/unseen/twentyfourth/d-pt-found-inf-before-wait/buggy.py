"""Gradient scaler for sharded gradients: agree on overflow over the process group.

After pytorch/pytorch PR #115710 (torch/distributed/fsdp/sharded_grad_scaler.py).
"""
import torch
import torch.distributed as dist


class ShardedGradScaler:
    def __init__(self, process_group, init_scale=2.0 ** 16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.process_group, self.scale_value = process_group, init_scale
        self.growth, self.backoff, self.growth_interval = growth, backoff, growth_interval
        self.growth_tracker = 0
        self.found_inf_per_device = {}

    def scale(self, loss):
        return loss * self.scale_value

    @torch.no_grad()
    def _unscale_local_shards(self, optimizer):
        """Divide by the scale and look for inf/nan in the shards of this rank."""
        found_inf = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                device = p.grad.device
                flag = found_inf.setdefault(device, torch.zeros(1, device=device))
                flag += (~torch.isfinite(p.grad)).any().to(flag.dtype)
                p.grad.mul_(1.0 / self.scale_value)
        return found_inf

    def unscale_(self, optimizer):
        self.found_inf_per_device = self._unscale_local_shards(optimizer)
        works = []
        for v in self.found_inf_per_device.values():
            if v.device.type == "cpu":
                # CPU-offloaded gradients: communicate on the GPU
                v_on_cuda = v.cuda()
                works.append(dist.all_reduce(v_on_cuda, async_op=True, group=self.process_group))
                v.copy_(v_on_cuda)  # BUG: read before the collective has finished
            else:
                works.append(dist.all_reduce(v, async_op=True, group=self.process_group))
        for work in works:
            work.wait()

    def step(self, optimizer):
        """Call after unscale_; every rank steps or none does."""
        if self._found_inf() == 0:
            optimizer.step()

    def _found_inf(self):
        return sum(v.item() for v in self.found_inf_per_device.values())

    def update(self):
        if self._found_inf() > 0:
            self.scale_value *= self.backoff
            self.growth_tracker = 0
            return
        self.growth_tracker += 1
        if self.growth_tracker == self.growth_interval:
            self.scale_value *= self.growth
            self.growth_tracker = 0


def train_step(model, batch, loss_fn, optimizer, scaler):
    optimizer.zero_grad()
    scaler.scale(loss_fn(model(batch["x"]), batch["y"])).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
