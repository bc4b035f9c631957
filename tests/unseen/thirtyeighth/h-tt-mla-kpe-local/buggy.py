"""Tensor-parallel plan of multi-latent attention."""
# thread: pytorch/torchtitan#1373
import torch
import torch.nn as nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from torchtitan.distributed import NoParallel
from torchtitan.models.attention import build_attention


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.n_heads, self.kv_lora_rank = args.n_heads, args.kv_lora_rank
        self.nope, self.rope, self.v_dim = args.qk_nope_head_dim, args.qk_rope_head_dim, args.v_head_dim
        self.wq = nn.Linear(args.dim, self.n_heads * (self.nope + self.rope), bias=False)
        self.wkv_a = nn.Linear(args.dim, self.kv_lora_rank + self.rope, bias=False)
        self.kv_norm = nn.RMSNorm(self.kv_lora_rank)
        self.wkv_b = nn.Linear(self.kv_lora_rank, self.n_heads * (self.nope + self.v_dim), bias=False)
        self.wo = nn.Linear(self.n_heads * self.v_dim, args.dim, bias=False)
        self.inner_attention = build_attention(args)

    def forward(self, x):
        bsz, seqlen, _ = x.size()
        q = self.wq(x).view(bsz, seqlen, -1, self.nope + self.rope)
        kv, k_pe = torch.split(self.wkv_a(x), [self.kv_lora_rank, self.rope], dim=-1)
        kv = self.wkv_b(self.kv_norm(kv)).view(bsz, seqlen, -1, self.nope + self.v_dim)
        k_nope, v = torch.split(kv, [self.nope, self.v_dim], dim=-1)
        k_pe = k_pe.unsqueeze(2).expand(-1, -1, k_nope.size(2), -1)
        k = torch.cat([k_nope, k_pe], dim=-1)
        out = self.inner_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.wo(out.transpose(1, 2).reshape(bsz, seqlen, -1))


def apply_non_moe_tp(model, tp_mesh):
    for block in model.layers.values():
        plan = {
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "attention.wq": ColwiseParallel(),
            "attention.wkv_a": NoParallel(),  # BUG: k_pe becomes a plain tensor, its gradient covers the local heads only
            "attention.kv_norm": NoParallel(),
            "attention.wkv_b": ColwiseParallel(),
            "attention.inner_attention": PrepareModuleInput(
                input_layouts=(Shard(1),) * 3,
                desired_input_layouts=(Shard(1),) * 3,
                use_local_output=True,
            ),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, tp_mesh, plan)
