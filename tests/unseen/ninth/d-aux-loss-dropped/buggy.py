"""Token choice mixture of experts with a load balancing loss that rides on the gate weights."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AttachAuxLoss(torch.autograd.Function):
    """Identity on its first input; in backward the second one gets the gradient `scale`."""

    scale = 1.0

    @staticmethod
    def forward(ctx, carrier, aux_loss):
        ctx.save_for_backward(aux_loss)
        return carrier.view_as(carrier)

    @staticmethod
    def backward(ctx, grad):
        (aux_loss,) = ctx.saved_tensors
        return grad, torch.full_like(aux_loss, AttachAuxLoss.scale)


class Gate(nn.Module):
    def __init__(self, dim, experts, top_k, aux_coef):
        super().__init__()
        self.experts, self.top_k, self.aux_coef = experts, top_k, aux_coef
        self.proj = nn.Linear(dim, experts, bias=False)

    def balance_loss(self, probs, choices):
        share = F.one_hot(choices, self.experts).sum(dim=(0, 1)).float()
        dist.all_reduce(share)
        share = share / share.sum()
        return self.aux_coef * self.experts * (share * probs.mean(dim=0)).sum()

    def forward(self, x):
        probs = F.softmax(self.proj(x).float(), dim=-1)
        weights, choices = probs.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        if self.training and self.aux_coef > 0:
            aux_loss = self.balance_loss(probs, choices)
            AttachAuxLoss.apply(weights, aux_loss)  # BUG
        return weights.to(x.dtype), choices


class MoeLayer(nn.Module):
    def __init__(self, dim, inner, experts, top_k, aux_coef):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate = Gate(dim, experts, top_k, aux_coef)
        self.w_in = nn.Parameter(torch.randn(experts, dim, inner) * dim**-0.5)
        self.w_out = nn.Parameter(torch.randn(experts, inner, dim) * inner**-0.5)

    def forward(self, x):
        flat = self.norm(x).flatten(0, -2)
        weights, choices = self.gate(flat)
        mixing = flat.new_zeros(flat.size(0), self.w_in.size(0)).scatter(1, choices, weights)
        inner = F.silu(torch.einsum("td,edf->etf", flat, self.w_in))
        out = torch.einsum("etf,efd,te->td", inner, self.w_out, mixing)
        return x + out.view_as(x)


class MoeModel(nn.Module):
    def __init__(self, vocab, dim, inner, depth, experts, top_k=2, aux_coef=1e-2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(MoeLayer(dim, inner, experts, top_k, aux_coef) for _ in range(depth))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(model, loader, sampler, device, epochs, accumulate=4):
    model = DDP(model.to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    AttachAuxLoss.scale = 1.0 / accumulate
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for number, (tokens, targets) in enumerate(loader, start=1):
            model.require_backward_grad_sync = number % accumulate == 0
            logits = model(tokens.to(device)).flatten(0, 1).float()
            loss = F.cross_entropy(logits, targets.to(device).flatten()) / accumulate
            loss.backward()
            if number % accumulate == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        optimizer.zero_grad()
