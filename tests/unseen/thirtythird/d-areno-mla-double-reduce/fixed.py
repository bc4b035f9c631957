"""Multi-latent attention: replicated down projection in front of a column-parallel up projection.

Source: https://github.com/inclusionAI/AReno/pull/496
Wrong: the copy boundary at the input of the up projection already sums the gradient over TP;
without sequence parallelism the manager sums the down projection's gradient once more (factor tp).
Repair: ask for the parameter reduction only when the tokens are split over TP.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from areno.parallel import get_tp_group
from areno.parallel.mappings import gather_from_sequence_parallel_region


class CopyToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class BailingMLAQuery(nn.Module):
    def __init__(self, config, tp_size):
        super().__init__()
        heads = config.num_attention_heads // tp_size
        self.sequence_parallel = config.sequence_parallel
        self.q_a_proj = nn.Linear(config.hidden_size, config.q_lora_rank, bias=False)
        self.q_a_layernorm = nn.RMSNorm(config.q_lora_rank)
        self.q_b_weight = nn.Parameter(torch.empty(heads * config.head_dim, config.q_lora_rank))
        self.q_b_weight.tp_sharded = True
        for p in (*self.q_a_proj.parameters(), *self.q_a_layernorm.parameters()):
            p.tp_grad_sum = self.sequence_parallel

    def forward(self, hidden):
        # hidden: [s / tp, b, h] with sequence parallelism, else [s, b, h] on all TP ranks
        q = self.q_a_layernorm(self.q_a_proj(hidden))
        if self.sequence_parallel:
            q = gather_from_sequence_parallel_region(q)  # backward: reduce-scatter
        else:
            q = CopyToTensorParallel.apply(q, get_tp_group())
        return F.linear(q, self.q_b_weight)


class TrainingManager:
    def __init__(self, model):
        self.model = model

    def reduce_replicated_grads(self):
        for p in self.model.parameters():
            if getattr(p, "tp_grad_sum", False) and p.grad is not None:
                dist.all_reduce(p.grad, group=get_tp_group())
