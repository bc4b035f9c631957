"""MoE router with a bias that balances the experts, updated before the optimizer step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class TokenChoiceTopKRouter(nn.Module):
    def __init__(self, dim, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.num_experts, self.top_k = num_experts, top_k

    def forward(self, x, expert_bias):
        scores = torch.sigmoid(self.gate(x).float())
        _, selected = torch.topk(scores + expert_bias, k=self.top_k, dim=1)
        top_scores = scores.gather(dim=1, index=selected)
        top_scores = top_scores / top_scores.sum(dim=-1, keepdim=True)
        counts = torch.bincount(selected.view(-1), minlength=self.num_experts)
        return top_scores, selected, counts


class MoE(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts, top_k, load_balance_coeff=1e-3):
        super().__init__()
        self.router = TokenChoiceTopKRouter(dim, num_experts, top_k)
        self.w1 = nn.Parameter(torch.randn(num_experts, dim, hidden_dim) * 0.02)
        self.w2 = nn.Parameter(torch.randn(num_experts, hidden_dim, dim) * 0.02)
        self.load_balance_coeff = load_balance_coeff
        self.register_buffer("expert_bias", torch.zeros(num_experts, dtype=torch.float32), persistent=True)
        self.register_buffer("tokens_per_expert", torch.zeros(num_experts, dtype=torch.float32), persistent=False)

    def forward(self, x):
        bs, slen, dim = x.shape
        x = x.view(-1, dim)
        top_scores, selected, counts = self.router(x, self.expert_bias)
        with torch.no_grad():
            self.tokens_per_expert.add_(counts)
        out = torch.zeros_like(x)
        for e in range(self.router.num_experts):
            token, slot = torch.where(selected == e)
            h = F.silu(x[token] @ self.w1[e]) @ self.w2[e]
            out = out.index_add(0, token, h * top_scores[token, slot, None].type_as(h))
        return out.view(bs, slen, dim)


def register_expert_bias_hook(optimizer, model, dp_mesh):
    moe_layers = [m for m in model.modules() if isinstance(m, MoE)]

    @torch.no_grad()
    def _update_expert_bias(*args, **kwargs):
        tokens = torch.vstack([m.tokens_per_expert for m in moe_layers])
        dist.all_reduce(tokens, op=dist.ReduceOp.SUM, group=dp_mesh.get_group())
        for moe, load in zip(moe_layers, tokens):
            delta = moe.load_balance_coeff * torch.sign(load.mean() - load)
            moe.expert_bias.add_(delta - delta.mean())
            moe.tokens_per_expert.zero_()

    optimizer.register_step_pre_hook(_update_expert_bias)


class Trainer:
    def __init__(self, model, cfg):
        self.cfg = cfg
        self.dp_mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
        self.model = model.cuda()
        for layer in self.model.layers:
            fully_shard(layer, mesh=self.dp_mesh)
        fully_shard(self.model, mesh=self.dp_mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        register_expert_bias_hook(self.optimizer, self.model, self.dp_mesh)

    def train_step(self, inputs, labels):
        self.optimizer.zero_grad()
        pred = self.model(inputs)
        loss = F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_norm)
        self.optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=self.dp_mesh.get_group())
        return loss, grad_norm.full_tensor()
