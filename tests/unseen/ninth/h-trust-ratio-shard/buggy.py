"""LAMB whose states are partitioned over the data parallel ranks (ZeRO 1)."""
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F


class PartitionedLamb:
    """Every parameter is flattened, padded and cut into one piece for each rank."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, group=None):
        self.params = [p for p in params if p.requires_grad]
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.group = group or dist.group.WORLD
        self.rank, self.size = self.group.rank(), self.group.size()
        self.steps = 0
        self.pieces, self.states = [], []
        for param in self.params:
            piece = self._pad(param.detach().float()).chunk(self.size)[self.rank].clone()
            self.pieces.append(piece)
            self.states.append((torch.zeros_like(piece), torch.zeros_like(piece)))

    def _pad(self, tensor):
        flat = tensor.flatten()
        return F.pad(flat, (0, math.ceil(flat.numel() / self.size) * self.size - flat.numel()))

    def _reduce_scatter(self, grad):
        flat = self._pad(grad.float())
        out = flat.new_empty(flat.numel() // self.size)
        dist.reduce_scatter_tensor(out, flat, group=self.group)
        return out.div_(self.size)

    def _trust_ratios(self, updates):
        squares = torch.stack(
            [torch.stack([p.square().sum(), u.square().sum()]) for p, u in zip(self.pieces, updates)]
        )
        weight_norm, update_norm = squares.sqrt().unbind(dim=1)  # BUG
        ratio = weight_norm / update_norm
        usable = (weight_norm > 0) & (update_norm > 0)
        return torch.where(usable, ratio, torch.ones_like(ratio)).clamp(max=10.0)

    @torch.no_grad()
    def step(self):
        self.steps += 1
        beta1, beta2 = self.betas
        correction1 = 1 - beta1**self.steps
        correction2 = 1 - beta2**self.steps
        updates = []
        for param, piece, (first, second) in zip(self.params, self.pieces, self.states):
            grad = self._reduce_scatter(param.grad)
            first.lerp_(grad, 1 - beta1)
            second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            update = (first / correction1) / ((second / correction2).sqrt() + self.eps)
            updates.append(update.add_(piece, alpha=self.weight_decay))
        ratios = self._trust_ratios(updates)
        for param, piece, update, ratio in zip(self.params, self.pieces, updates, ratios):
            piece.sub_(self.lr * ratio * update)
            full = piece.new_empty(piece.numel() * self.size)
            dist.all_gather_into_tensor(full, piece, group=self.group)
            param.copy_(full[: param.numel()].view_as(param))

    def zero_grad(self):
        for param in self.params:
            param.grad = None


def pretrain(model, loader, sampler, epochs, lr, device):
    model.to(device)
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)
    optimizer = PartitionedLamb(model.parameters(), lr=lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for tokens, targets in loader:
            logits = model(tokens.to(device))
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.to(device).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
