"""Load balance over the global batch: fractions of all ranks as constants, probabilities of this rank with gradient."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Router(nn.Module):
    def __init__(self, dim, experts, k, coeff, group):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts, self.k, self.coeff, self.group = experts, k, coeff, group
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts))

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        _, idx = (probs.detach() + self.bias).topk(self.k, dim=-1)
        weight = probs.gather(-1, idx)
        counts = torch.bincount(idx.flatten(), minlength=self.experts).float()
        total = counts.clone()
        dist.all_reduce(total, group=self.group)
        self.load += total
        fraction = total / total.sum()
        # linear in the probabilities: the mean over ranks of this is the loss of the global batch
        aux = self.coeff * self.experts * (fraction * probs.mean(0)).sum()
        return weight / weight.sum(-1, keepdim=True), idx, aux

    @torch.no_grad()
    def update_bias(self, speed=1e-3):
        self.bias += speed * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class Layer(nn.Module):
    def __init__(self, dim, experts, k, group):
        super().__init__()
        self.router = Router(dim, experts, k, 0.01, group)
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim)) for _ in range(experts))

    def forward(self, x):
        weight, idx, aux = self.router(x)
        out = torch.zeros_like(x)
        for e, mlp in enumerate(self.mlps):
            rows, slot = (idx == e).nonzero(as_tuple=True)
            out = out.index_add(0, rows, mlp(x[rows]) * weight[rows, slot, None])
        return out, aux


def train(net, loader, group):
    model = nn.parallel.DistributedDataParallel(net, process_group=group, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        out, aux = model(x)
        loss = F.mse_loss(out, y) + aux
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.router.update_bias()
