"""Multi-latent attention under TP: replicated down projections, column-parallel up projections."""
# inclusionAI/AReno PR 496: the copy boundary of the up projection already sums; the manager sums the parameters' gradients again.
import torch
import torch.distributed as dist
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
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MLAQuery(torch.nn.Module):
    def __init__(self, hidden, rank_q, q_b_shard, o_shard, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.q_a = torch.nn.Parameter(torch.empty(rank_q, hidden))
        self.q_norm = torch.nn.Parameter(torch.ones(rank_q))
        self.q_b = torch.nn.Parameter(q_b_shard)
        self.o = torch.nn.Parameter(o_shard)

    def forward(self, hidden_states):
        # hidden_states: the same on all ranks of tp_group
        latent = F.linear(hidden_states, self.q_a)
        latent = latent * torch.rsqrt(latent.pow(2).mean(-1, keepdim=True) + 1e-6) * self.q_norm
        q = F.linear(_CopyToTP.apply(latent, self.tp_group), self.q_b)
        return _ReduceFromTP.apply(F.linear(F.silu(q), self.o), self.tp_group)


class TrainingManager:
    def __init__(self, model: MLAQuery, optimizer, tp_group, dp_group):
        self.model, self.optimizer = model, optimizer
        self.tp_group, self.dp_group = tp_group, dp_group

    def sync_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
        for p in (self.model.q_a, self.model.q_norm):
            dist.all_reduce(p.grad, group=self.tp_group)  # BUG: complete already, becomes tp times too large

    def step(self, hidden_states, target):
        loss = F.mse_loss(self.model(hidden_states), target)
        loss.backward()
        self.sync_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
