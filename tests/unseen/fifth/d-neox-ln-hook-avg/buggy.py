"""Keep layer-norm weights in step under sequence parallelism."""
import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden, attention, mlp):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention, self.mlp = attention, mlp

    def forward(self, x):
        # x: [s/mp, b, h], this model-parallel rank's part of the sequence
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


def attach_norm_hooks(model, mp_group):
    def reduce_weight_grad(grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=mp_group)  # BUG: shares of one sequence are averaged
        return grad

    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            for p in module.parameters():
                p.register_hook(reduce_weight_grad)
