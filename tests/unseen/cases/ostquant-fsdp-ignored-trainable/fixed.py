"""Train rotations of a frozen model under FSDP."""
# BrotherHappy/OSTQuant issue 15 (pytorch 98281): FSDP does not synchronise ignored modules, and here all that is trained is ignored.
import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class RotateModule(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(size, dtype=torch.float32))

    def forward(self, x):
        return (x.float() @ self.weight).to(x.dtype)


class QuantLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.rotate = RotateModule(size)
        self.linear = nn.Linear(size, size, dtype=torch.bfloat16)
        self.linear.weight.requires_grad_(False)
        self.linear.bias.requires_grad_(False)

    def forward(self, x):
        return self.linear(self.rotate(x))


def build(model):
    ignored = [m for m in model.modules() if isinstance(m, RotateModule)]
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={QuantLayer})
    model = FSDP(
        model,
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        ignored_modules=ignored,
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )
    return model, [m.weight for m in ignored]


def train(model, loader, lr):
    dist.init_process_group("nccl")
    model, trainable = build(model)
    optimizer = torch.optim.SGD(trainable, lr=lr)
    for batch, target in loader:
        loss = nn.functional.mse_loss(model(batch), target)
        loss.backward()
        for p in trainable:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
