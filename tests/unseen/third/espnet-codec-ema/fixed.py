"""Neural codec training: codebook kept by exponential moving averages."""
# Source: espnet/espnet pull request 6284 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def broadcast_tensors(tensors, src=0):
    for tensor in tensors:
        dist.broadcast(tensor, src=src)


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, eps=1e-5):
        super().__init__()
        self.decay, self.eps, self.codebook_size = decay, eps, codebook_size
        embed = torch.empty(codebook_size, dim)
        nn.init.kaiming_uniform_(embed)
        self.register_buffer("inited", torch.zeros(1, dtype=torch.bool))
        self.register_buffer("cluster_size", torch.zeros(codebook_size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    def init_embed_(self, data):
        if self.inited:
            return
        pick = torch.randint(0, data.size(0), (self.codebook_size,), device=data.device)
        self.embed.copy_(data[pick])
        self.embed_avg.copy_(self.embed)
        self.cluster_size.fill_(1.0)
        self.inited.fill_(True)
        broadcast_tensors([self.embed, self.embed_avg])

    def quantize(self, x):
        return torch.cdist(x, self.embed).argmin(dim=-1)

    @torch.no_grad()
    def update(self, x, index):
        onehot = F.one_hot(index, self.codebook_size).type(x.dtype)
        cluster_size = onehot.sum(0)
        embed_sum = onehot.t() @ x
        dist.all_reduce(cluster_size)
        dist.all_reduce(embed_sum)
        self.cluster_size.mul_(self.decay).add_(cluster_size, alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
        total = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (total + self.codebook_size * self.eps) * total
        self.embed.copy_(self.embed_avg / smoothed.unsqueeze(1))

    def forward(self, x):
        flat = x.detach().reshape(-1, x.size(-1))
        self.init_embed_(flat)
        index = self.quantize(flat)
        out = F.embedding(index, self.embed).view_as(x)
        if self.training:
            self.update(flat, index)
        return x + (out - x).detach(), F.mse_loss(x, out.detach())


def build_trainer_model(codec, local_rank):
    return DistributedDataParallel(
        codec.cuda(local_rank), device_ids=[local_rank], broadcast_buffers=False
    )
