"""Multi-latent attention under tensor parallelism, without sequence parallelism."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ColumnParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = nn.Parameter(torch.empty(out_features // dist.get_world_size(tp_group), in_features))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return F.linear(_CopyToTP.apply(x, self.tp_group), self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = nn.Parameter(torch.empty(out_features, in_features // dist.get_world_size(tp_group)))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return _ReduceFromTP.apply(F.linear(x, self.weight), self.tp_group)


class MLASelfAttention(nn.Module):
    def __init__(self, cfg, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.local_heads = cfg.num_heads // dist.get_world_size(tp_group)
        self.head_dim, self.rope_dim, self.kv_rank = cfg.head_dim, cfg.rope_dim, cfg.kv_lora_rank
        self.q_a_proj = nn.Linear(cfg.hidden_size, cfg.q_lora_rank, bias=False)
        self.q_a_norm = nn.RMSNorm(cfg.q_lora_rank)
        self.q_b_proj = ColumnParallelLinear(cfg.q_lora_rank, cfg.num_heads * (cfg.head_dim + cfg.rope_dim), tp_group)
        self.kv_a_proj = nn.Linear(cfg.hidden_size, cfg.kv_lora_rank + cfg.rope_dim, bias=False)
        self.kv_a_norm = nn.RMSNorm(cfg.kv_lora_rank)
        self.kv_b_proj = ColumnParallelLinear(cfg.kv_lora_rank, cfg.num_heads * 2 * cfg.head_dim, tp_group)
        self.q_head_norm = nn.RMSNorm(cfg.head_dim)
        self.k_head_norm = nn.RMSNorm(cfg.head_dim)
        self.o_proj = RowParallelLinear(cfg.num_heads * cfg.head_dim, cfg.hidden_size, tp_group)
        for m in (self.q_head_norm, self.k_head_norm):
            m.weight.sum_grad_over_tp = True

    def forward(self, x, rope):
        b, s, _ = x.shape
        q = self.q_b_proj(self.q_a_norm(self.q_a_proj(x))).view(b, s, self.local_heads, -1)
        q_nope, q_pe = q.split([self.head_dim, self.rope_dim], dim=-1)

        kv, k_pe = self.kv_a_proj(x).split([self.kv_rank, self.rope_dim], dim=-1)
        k_pe = _CopyToTP.apply(k_pe, self.tp_group)
        kv = self.kv_b_proj(self.kv_a_norm(kv)).view(b, s, self.local_heads, -1)
        k_nope, v = kv.chunk(2, dim=-1)

        q = torch.cat([self.q_head_norm(q_nope), rope(q_pe)], dim=-1)
        k_pe = rope(k_pe.unsqueeze(2)).expand(-1, -1, self.local_heads, -1)
        k = torch.cat([self.k_head_norm(k_nope), k_pe], dim=-1)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        return self.o_proj(out.transpose(1, 2).reshape(b, s, -1))


class TrainingManager:
    def __init__(self, model, optimizer, tp_group, dp_group):
        self.model, self.optimizer = model, optimizer
        self.tp_group, self.dp_group = tp_group, dp_group

    def finalize_grads(self):
        for p in self.model.parameters():
            if getattr(p, "sum_grad_over_tp", False):
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=self.tp_group)
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)

    def step(self, loss):
        loss.backward()
        self.finalize_grads()
        self.optimizer.step()
        self.optimizer.zero_grad()
