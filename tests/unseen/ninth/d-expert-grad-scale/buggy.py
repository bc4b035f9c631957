"""Mixture of experts with one expert on every data parallel rank."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class Router(nn.Module):
    """Top-1 router with a fixed capacity for each expert."""

    def __init__(self, hidden, experts, capacity_factor):
        super().__init__()
        self.proj = nn.Linear(hidden, experts, bias=False)
        self.experts, self.capacity_factor = experts, capacity_factor

    def forward(self, x):
        probs = F.softmax(self.proj(x).float(), dim=-1)
        gate, choice = probs.max(dim=-1)
        onehot = F.one_hot(choice, self.experts)
        position = (onehot.cumsum(dim=0) * onehot).sum(dim=-1) - 1
        capacity = int(self.capacity_factor * x.size(0) / self.experts)
        fits = position < capacity
        slots = F.one_hot(position.clamp(max=capacity - 1), capacity) * fits.unsqueeze(-1)
        dispatch = (onehot.unsqueeze(-1) * slots.unsqueeze(1)).to(x.dtype)
        return dispatch, dispatch * gate.to(x.dtype)[:, None, None]


class ExpertParallelMlp(nn.Module):
    def __init__(self, hidden, ffn, capacity_factor=1.25):
        super().__init__()
        self.router = Router(hidden, dist.get_world_size(), capacity_factor)
        self.expert = nn.Sequential(nn.Linear(hidden, ffn), nn.GELU(), nn.Linear(ffn, hidden))

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        dispatch, combine = self.router(flat)
        outgoing = torch.einsum("td,tec->ecd", flat, dispatch)
        incoming = AllToAll.apply(outgoing)
        outgoing = self.expert(incoming)
        incoming = AllToAll.apply(outgoing)
        return x + torch.einsum("ecd,tec->td", incoming, combine).view_as(x)


class Model(nn.Module):
    def __init__(self, vocab, hidden, ffn, depth):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(ExpertParallelMlp(hidden, ffn) for _ in range(depth))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Trainer:
    def __init__(self, model, device, lr):
        model = model.to(device)
        names = [n for n, _ in model.named_parameters() if ".expert." in n]
        self.expert_params = [p for n, p in model.named_parameters() if n in set(names)]
        DDP._set_params_and_buffers_to_ignore_for_model(model, names)
        self.model = DDP(model, device_ids=[device.index])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.expert_grad_factor = 1.0  # BUG

    def step(self, tokens, labels):
        self.optimizer.zero_grad()
        logits = self.model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
        for param in self.expert_params:
            param.grad.mul_(self.expert_grad_factor)
        self.optimizer.step()
        return loss.detach()
