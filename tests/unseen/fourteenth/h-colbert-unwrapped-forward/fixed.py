# Reduces contrastive training in pylate/sentence-transformers where the loss object keeps the bare model: the
# forward bypasses DistributedDataParallel, whose reducer is then never armed, and the replicas drift.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ColBERT(nn.Module):
    def __init__(self, encoder, dim, out_dim=128):
        super().__init__()
        self.encoder = encoder
        self.linear = nn.Linear(dim, out_dim, bias=False)

    def forward(self, features):
        return F.normalize(self.linear(self.encoder(features["input_ids"])), dim=-1)


class Contrastive(nn.Module):
    def __init__(self, model, temperature=1.0):
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(self, features):
        reps = [self.model(f) for f in features]
        scores = torch.einsum("ash,bth->abst", reps[0], reps[1]).max(dim=-1).values.sum(dim=-1)
        labels = torch.arange(scores.size(0), device=scores.device)
        return F.cross_entropy(scores / self.temperature, labels)


def unwrap(model):
    return model.module if isinstance(model, DistributedDataParallel) else model


def main(encoder, loader, local_rank):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(ColBERT(encoder, 768).cuda(local_rank), device_ids=[local_rank],
                                    broadcast_buffers=False)
    loss_fn = Contrastive(model)
    optimizer = torch.optim.AdamW(unwrap(model).parameters(), lr=3e-6)
    for features in loader:
        loss = loss_fn(features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
