import torch.nn as nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, parallelize_module


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attn = Attn(cfg)
        self.mlp = Mlp(cfg)
        self.attn_norm = nn.LayerNorm(cfg.dim)
        self.mlp_norm = nn.LayerNorm(cfg.dim)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def apply(model, mesh):
    for block in model.blocks:
        plan = {
            "attn_norm": SequenceParallel(),
            "attn": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "attn.proj": RowwiseParallel(output_layouts=Shard(1)),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.fc2": RowwiseParallel(output_layouts=Shard(1)),
        }
        block.mlp_norm.requires_grad_(False)
        parallelize_module(block, mesh, plan)
