"""GShard style expert parallel layer with manual gradient averaging."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x):
        ctx.group = group
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, _AllToAll.apply(ctx.group, grad)


class Experts(nn.Module):
    """The experts owned by this rank of the expert parallel group."""

    def __init__(self, dim, hidden, num_experts, ep_group):
        super().__init__()
        ep_size, ep_rank = dist.get_world_size(ep_group), dist.get_rank(ep_group)
        w1 = torch.randn(num_experts, dim, hidden) * 0.02
        w2 = torch.randn(num_experts, hidden, dim) * 0.02
        self.w1 = nn.Parameter(w1.chunk(ep_size)[ep_rank].clone())
        self.w2 = nn.Parameter(w2.chunk(ep_size)[ep_rank].clone())
        for param in self.parameters():
            param.allreduce = False

    def forward(self, x):
        return torch.bmm(F.gelu(torch.bmm(x, self.w1)), self.w2)


class MOELayer(nn.Module):
    def __init__(self, dim, hidden, num_experts, ep_group, capacity_factor=2.0):
        super().__init__()
        self.num_experts, self.ep_group, self.capacity_factor = num_experts, ep_group, capacity_factor
        self.wg = nn.Linear(dim, num_experts, bias=False)
        self.experts = Experts(dim, hidden, num_experts, ep_group)

    def forward(self, x):
        tokens = x.reshape(-1, x.size(-1))
        num_tokens, dim = tokens.shape
        capacity = int(self.capacity_factor * num_tokens / self.num_experts)
        gates = self.wg(tokens).softmax(dim=-1)
        mask = F.one_hot(gates.argmax(dim=-1), self.num_experts)
        position = (mask.cumsum(dim=0) - 1) * mask
        mask = mask * (position < capacity)
        slot = F.one_hot((position * mask).sum(dim=-1), capacity).to(gates.dtype)
        combine = torch.einsum("se,sc->sec", gates * mask, slot)
        dispatch = torch.einsum("se,sc->sec", mask.to(gates.dtype), slot)

        ep_size = dist.get_world_size(self.ep_group)
        local_experts = self.num_experts // ep_size
        dispatched = torch.einsum("sec,sm->ecm", dispatch, tokens)
        dispatched = _AllToAll.apply(self.ep_group, dispatched)
        dispatched = dispatched.view(ep_size, local_experts, capacity, dim).transpose(0, 1)
        output = self.experts(dispatched.reshape(local_experts, ep_size * capacity, dim))
        output = output.view(local_experts, ep_size, capacity, dim).transpose(0, 1)
        output = _AllToAll.apply(self.ep_group, output.reshape(self.num_experts, capacity, dim))
        return torch.einsum("sec,ecm->sm", combine, output).view_as(x)


class Model(nn.Module):
    def __init__(self, vocab, dim, num_experts, ep_group):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim)
        self.moe = MOELayer(dim, 4 * dim, num_experts, ep_group)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.moe(self.norm(x)))


class GradientAverager:
    def __init__(self, model, dp_group, expert_dp_group):
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group
        self.dp_world_size = dist.get_world_size(dp_group)
        self.dense = [p for p in model.parameters() if getattr(p, "allreduce", True)]
        self.expert = [p for p in model.parameters() if not getattr(p, "allreduce", True)]

    def average_dense(self):
        for param in self.dense:
            param.grad.div_(self.dp_world_size)
            dist.all_reduce(param.grad, group=self.dp_group)

    def average_experts(self):
        for param in self.expert:
            param.grad.div_(dist.get_world_size(self.expert_dp_group))  # BUG
            dist.all_reduce(param.grad, group=self.expert_dp_group)

    def __call__(self):
        self.average_dense()
        self.average_experts()


def create_expert_groups(ep_size):
    world, rank = dist.get_world_size(), dist.get_rank()
    ep_group = expert_dp_group = None
    for start in range(0, world, ep_size):
        ranks = list(range(start, start + ep_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            ep_group = group
    for offset in range(ep_size):
        ranks = list(range(offset, world, ep_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            expert_dp_group = group
    return ep_group, expert_dp_group


def main(ep_size=2, vocab=256, dim=32, num_experts=4, steps=10, seed=0):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    ep_group, expert_dp_group = create_expert_groups(ep_size)
    torch.manual_seed(seed)
    model = Model(vocab, dim, num_experts, ep_group).to(device)
    average_gradients = GradientAverager(model, dist.group.WORLD, expert_dp_group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(seed + 1 + dist.get_rank())
    for step in range(steps):
        batch = torch.randint(vocab, (4, 33), generator=generator).to(device)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients()
        optimizer.step()
        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        if dist.get_rank() == 0:
            print(f"step {step} loss {mean_loss.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
