# sgl-project/SpecForge pull request 663
# After an FSDP backward every rank holds only a shard of each gradient; plain clip_grad_norm_ clips each shard by
# its own norm, so the coefficients differ over ranks and are too large.
"""BF16 optimizer with fp32 master copies of FSDP (SHARD_GRAD_OP) flat parameters."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


class BF16Optimizer:
    def __init__(self, model, lr, max_grad_norm):
        # flat parameters, each rank owns its own slice
        self.model_params = [p for p in model.parameters() if p.requires_grad]
        self.fp32_params = [p.detach().clone().to(torch.float32) for p in self.model_params]
        for mp in self.fp32_params:
            mp.requires_grad = True
        self.optimizer = torch.optim.AdamW(self.fp32_params, lr=lr)
        self.max_grad_norm = max_grad_norm

    def step(self):
        with torch.no_grad():
            for p, mp in zip(self.model_params, self.fp32_params):
                mp.grad = p.grad.detach().to(torch.float32) if p.grad is not None else None
        grad_norm = torch.nn.utils.clip_grad_norm_(self.fp32_params, self.max_grad_norm)  # BUG
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for p, mp in zip(self.model_params, self.fp32_params):
                p.data.copy_(mp.data.to(p.dtype))
                p.grad = None
        return grad_norm


def build(draft_model, lr, max_grad_norm):
    model = FSDP(draft_model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=False)
    return model, BF16Optimizer(model, lr, max_grad_norm)


def train_step(model, optimizer, batch):
    loss = model(**batch)
    loss.backward()
    grad_norm = optimizer.step()
    logged = loss.detach().clone()
    dist.all_reduce(logged)
    return logged / dist.get_world_size(), grad_norm
