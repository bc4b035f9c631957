"""Dropless expert parallel MoE: tokens travel to the rank that owns their expert and back."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class AllToAllVariable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send_splits, recv_splits, group):
        ctx.send_splits, ctx.recv_splits, ctx.group = send_splits, recv_splits, group
        out = x.new_empty((sum(recv_splits), x.size(-1)))
        dist.all_to_all_single(out, x.contiguous(), recv_splits, send_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty((sum(ctx.send_splits), grad.size(-1)))
        dist.all_to_all_single(out, grad.contiguous(), ctx.send_splits, ctx.recv_splits, group=ctx.group)
        return out, None, None, None


class LocalExpert(nn.Module):
    """One expert per rank of the expert parallel group."""

    def __init__(self, dim, hidden, ep_rank):
        super().__init__()
        generator = torch.Generator().manual_seed(1000 + ep_rank)
        self.up = nn.Parameter(torch.randn(hidden, dim, generator=generator) * 0.05)
        self.down = nn.Parameter(torch.randn(dim, hidden, generator=generator) * 0.05)

    def forward(self, tokens):
        if tokens.size(0) == 0:
            # keep the received tensor and the weights in the autograd graph
            return tokens + 0.0 * (self.up.sum() + self.down.sum())
        return F.linear(F.gelu(F.linear(tokens, self.up)), self.down)


class UnifiedMoE(nn.Module):
    def __init__(self, dim, hidden, ep_group):
        super().__init__()
        self.group = ep_group
        self.ep_size = dist.get_world_size(ep_group)
        self.gate = nn.Linear(dim, self.ep_size, bias=False)
        self.expert = LocalExpert(dim, hidden, dist.get_rank(ep_group))

    def exchange_counts(self, send_counts):
        recv_counts = torch.empty_like(send_counts)
        dist.all_to_all_single(recv_counts, send_counts, group=self.group)
        return send_counts.tolist(), recv_counts.tolist()

    def forward(self, x):
        tokens = x.reshape(-1, x.size(-1))
        probs = self.gate(tokens).softmax(dim=-1)
        score, expert_id = probs.max(dim=-1)
        order = expert_id.argsort(stable=True)
        send_splits, recv_splits = self.exchange_counts(torch.bincount(expert_id, minlength=self.ep_size))

        dispatched = AllToAllVariable.apply(tokens[order], send_splits, recv_splits, self.group)
        processed = self.expert(dispatched)
        returned = AllToAllVariable.apply(processed, recv_splits, send_splits, self.group)
        combined = torch.zeros_like(tokens).index_copy(0, order, returned)
        return (combined * score.unsqueeze(-1)).view_as(x)


class Model(nn.Module):
    def __init__(self, vocab, dim, n_layers, ep_group):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(n_layers))
        self.layers = nn.ModuleList(UnifiedMoE(dim, 4 * dim, ep_group) for _ in range(n_layers))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


def sync_gradients(model, group):
    """Dense weights are averaged, experts already hold the sum over all ranks' tokens."""
    world = dist.get_world_size(group)
    experts = {id(p) for m in model.modules() if isinstance(m, LocalExpert) for p in m.parameters()}
    for param in model.parameters():
        param.grad.div_(world)
        if id(param) not in experts:
            dist.all_reduce(param.grad, group=group)


def main(vocab=256, dim=32, n_layers=2, steps=10, seed=0):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    group = dist.group.WORLD
    torch.manual_seed(seed)
    model = Model(vocab, dim, n_layers, group).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed + 1 + dist.get_rank())
    for step in range(steps):
        batch = torch.randint(vocab, (2, 17), generator=generator).to(device)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        sync_gradients(model, group)
        optimizer.step()
        reported = loss.detach().clone()
        dist.all_reduce(reported)
        if dist.get_rank() == 0:
            print(f"step {step} loss {reported.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
