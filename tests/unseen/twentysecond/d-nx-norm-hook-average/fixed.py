"""Norm-gradient hooks for sequence parallelism (EleutherAI/gpt-neox#1259)."""
import deepspeed
import torch
import torch.distributed as dist


class RMSNorm(torch.nn.Module):
    def __init__(self, dim, eps=1e-8):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        # x: sequence shard of this model-parallel rank
        return self.scale * x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)


def setup_model_and_optimizer(model, optimizer, config, mp_group):
    def reduce_grad(grad):
        dist.all_reduce(grad, group=mp_group)
        return grad

    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for module in engine.module.modules():
        if isinstance(module, RMSNorm):
            module.scale.register_hook(reduce_grad)
    return engine, optimizer
