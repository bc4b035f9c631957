"""Sigmoid image-text loss with the texts passed around the ring of ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def shift(tensor, to_rank, from_rank):
    received = torch.empty_like(tensor)
    ops = [
        dist.P2POp(dist.isend, tensor.contiguous(), to_rank),
        dist.P2POp(dist.irecv, received, from_rank),
    ]
    for request in dist.batch_isend_irecv(ops):
        request.wait()
    return received


class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, to_rank, from_rank):
        ctx.to_rank, ctx.from_rank = to_rank, from_rank
        return shift(tensor, to_rank, from_rank)

    @staticmethod
    def backward(ctx, grad):
        return shift(grad, ctx.from_rank, ctx.to_rank), None, None


class SigLipLoss(nn.Module):
    def __init__(self, rank, world_size):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    @staticmethod
    def pairwise(images, texts, scale, bias, positives):
        logits = scale * images @ texts.T + bias
        signs = -torch.ones_like(logits)
        if positives:
            signs = signs + 2 * torch.eye(len(images), device=images.device, dtype=logits.dtype)
        return -F.logsigmoid(signs * logits).sum() / len(images)

    def forward(self, images, texts, scale, bias):
        loss = self.pairwise(images, texts, scale, bias, positives=True)
        right = (self.rank + 1) % self.world_size
        left = (self.rank - 1) % self.world_size
        travelling = texts
        for _ in range(self.world_size - 1):
            travelling = Shift.apply(travelling, right, left)
            loss = loss + self.pairwise(images, travelling, scale, bias, positives=False)
        return loss


class TwoTower(nn.Module):
    def __init__(self, visual, textual):
        super().__init__()
        self.visual, self.textual = visual, textual
        self.log_scale = nn.Parameter(torch.tensor(2.3026))
        self.bias = nn.Parameter(torch.tensor(-10.0))

    def forward(self, images, tokens):
        images = F.normalize(self.visual(images), dim=-1)
        texts = F.normalize(self.textual(tokens), dim=-1)
        return images, texts, self.log_scale.exp(), self.bias


def train_epoch(model, criterion, loader, optimizer, scheduler, device):
    model.train()
    for images, tokens in loader:
        images, tokens = images.to(device), tokens.to(device)
        optimizer.zero_grad()
        loss = criterion(*model(images, tokens))
        loss.backward()
        optimizer.step()
        scheduler.step()


def build(visual, textual, device, steps, lr=1e-3):
    model = DDP(TwoTower(visual, textual).to(device), device_ids=[device.index])
    criterion = SigLipLoss(dist.get_rank(), dist.get_world_size())
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    return model, criterion, optimizer, scheduler
