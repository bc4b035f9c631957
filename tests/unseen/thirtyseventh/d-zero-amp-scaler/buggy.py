# thread: none (from memory of Megatron-LM)
"""Half-precision training with dynamic loss scaling and a sharded optimizer."""
import torch
import torch.distributed as dist


class DynamicLossScaler:
    def __init__(self, initial=2.0**16, growth=2.0, backoff=0.5, interval=1000, hysteresis=2):
        self.scale, self.growth, self.backoff = initial, growth, backoff
        self.interval, self.hysteresis = interval, hysteresis
        self.good_steps, self.tolerance = 0, hysteresis

    def update(self, overflow):
        if overflow:
            self.good_steps = 0
            self.tolerance -= 1
            if self.tolerance <= 0:
                self.scale = max(self.scale * self.backoff, 1.0)
        else:
            self.good_steps += 1
            if self.good_steps == self.interval:
                self.good_steps = 0
                self.tolerance = self.hysteresis
                self.scale *= self.growth


class ShardedAdamW:
    """Each rank keeps fp32 weights and moments for an equal slice of the model."""

    def __init__(self, model, lr, clip):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        total = sum(p.numel() for p in self.params)
        self.slice = (total + self.world - 1) // self.world
        self.padding = self.slice * self.world - total
        self.clip, self.scaler = clip, DynamicLossScaler()
        flat = self.flatten([p.detach() for p in self.params]).float()
        self.master = torch.nn.Parameter(self.mine(flat).clone())
        self.inner = torch.optim.AdamW([self.master], lr=lr)

    def flatten(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return torch.nn.functional.pad(flat, (0, self.padding))

    def mine(self, flat):
        return flat[self.rank * self.slice : (self.rank + 1) * self.slice]

    def scale_loss(self, loss):
        return loss * self.scaler.scale

    def reduce_grads(self):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        flat = self.flatten(grads).float().div_(self.world * self.scaler.scale)
        shard = torch.empty_like(self.master)
        dist.reduce_scatter_tensor(shard, flat)
        return shard

    @torch.no_grad()
    def step(self):
        shard = self.reduce_grads()
        found_inf = (~torch.isfinite(shard).all()).float()  # BUG
        norm_sq = shard.square().sum()
        dist.all_reduce(norm_sq)
        overflow = found_inf.item() > 0
        if not overflow:
            shard.mul_((self.clip / (norm_sq.sqrt() + 1e-6)).clamp(max=1.0))
            self.master.grad = shard
            self.inner.step()
        self.scaler.update(overflow)
        self.publish()
        for p in self.params:
            p.grad = None
        return not overflow

    def publish(self):
        dtype = self.params[0].dtype
        flat = torch.empty(self.slice * self.world, dtype=dtype, device=self.master.device)
        dist.all_gather_into_tensor(flat, self.master.detach().to(dtype))
        offset = 0
        for p in self.params:
            p.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()
