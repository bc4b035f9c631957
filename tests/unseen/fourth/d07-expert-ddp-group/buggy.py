"""Data-parallel reduction in a model with experts (megatron-like, hand-written DDP)."""
import torch
import torch.distributed as dist
import torch.nn as nn


class Experts(nn.Module):
    def __init__(self, config, ep_group):
        super().__init__()
        self.num_local = config.num_experts // dist.get_world_size(ep_group)
        self.w1 = nn.Parameter(torch.empty(self.num_local, config.hidden, config.ffn))
        self.w2 = nn.Parameter(torch.empty(self.num_local, config.ffn, config.hidden))
        for p in self.parameters():
            setattr(p, "allreduce", False)

    def forward(self, x):
        return torch.bmm(torch.relu(torch.bmm(x, self.w1)), self.w2)


class MoEDistributedDataParallel(nn.Module):
    """Dense parameters are averaged over dp, those of experts over the ranks with the same experts."""

    def __init__(self, module, parallel_context):
        super().__init__()
        self.module = module
        self.dp_group = parallel_context.get_group("dp")
        self.expert_dp_group = parallel_context.get_group("expert_dp")
        self.dp_size = dist.get_world_size(self.dp_group)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _split_params(self):
        dense, expert = [], []
        for p in self.module.parameters():
            if not p.requires_grad or p.grad is None:
                continue
            (dense if getattr(p, "allreduce", True) else expert).append(p)
        return dense, expert

    def allreduce_gradients(self):
        dense, expert = self._split_params()
        for params, group in ((dense, self.dp_group), (expert, self.expert_dp_group)):
            if not params:
                continue
            flat = torch.cat([p.grad.reshape(-1) for p in params])
            dist.all_reduce(flat, group=self.dp_group)  # BUG
            flat.div_(self.dp_size)
            offset = 0
            for p in params:
                p.grad.copy_(flat[offset : offset + p.numel()].view_as(p.grad))
                offset += p.numel()


def train_step(model, batch, loss_fn, optimizer):
    loss = loss_fn(model(batch["x"]), batch["y"])
    loss.backward()
    model.allreduce_gradients()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
