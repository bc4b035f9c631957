"""BF16 optimizer with fp32 master copies over an FSDP model.

Source: https://github.com/sgl-project/SpecForge/pull/663
"""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


class BF16Optimizer:
    def __init__(self, model, lr, max_grad_norm=0.5):
        self.max_grad_norm = max_grad_norm
        self.model_params = [p for p in model.parameters() if p.requires_grad]
        self.fp32_params = [p.detach().clone().float().requires_grad_() for p in self.model_params]
        self.optimizer = torch.optim.AdamW(self.fp32_params, lr=lr)

    def step(self):
        with torch.no_grad():
            for p, master in zip(self.model_params, self.fp32_params):
                master.grad = p.grad.detach().float() if p.grad is not None else None
            total = torch.zeros((), device="cuda")
            for master in self.fp32_params:
                if master.grad is not None:
                    total += master.grad.pow(2).sum()
            dist.all_reduce(total)
            scale = (self.max_grad_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
            for master in self.fp32_params:
                if master.grad is not None:
                    master.grad.mul_(scale)
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for p, master in zip(self.model_params, self.fp32_params):
                p.copy_(master.to(p.dtype))
                p.grad = None


def build(draft_model, lr):
    model = FSDP(
        draft_model, use_orig_params=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP
    )
    return model, BF16Optimizer(model, lr)


def train_step(model, optimizer, batch):
    loss = model(**batch)
    loss.backward()
    optimizer.step()
    return loss.detach()
