"""EMA codebook of a neural audio codec."""
# thread: espnet/espnet#6284
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class EuclideanCodebook(torch.nn.Module):
    def __init__(self, dim, size, decay=0.99, eps=1e-5):
        super().__init__()
        embed = torch.empty(size, dim, device="cuda").uniform_(-1, 1)
        dist.broadcast(embed, src=0)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("cluster_size", torch.ones(size, device="cuda"))
        self.decay, self.eps = decay, eps

    @torch.no_grad()
    def update(self, x, index):
        onehot = F.one_hot(index, self.embed.size(0)).type_as(x)
        counts, embed_sum = onehot.sum(0), onehot.t() @ x
        dist.all_reduce(counts)
        dist.all_reduce(embed_sum)
        self.cluster_size.mul_(self.decay).add_(counts, alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
        n = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (n + self.embed.size(0) * self.eps) * n
        self.embed.copy_(self.embed_avg / smoothed[:, None])

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        index = torch.cdist(flat.detach(), self.embed).argmin(-1)
        quantized = self.embed[index].view_as(x)
        if self.training:
            self.update(flat.detach(), index)
        return x + (quantized - x).detach(), F.mse_loss(x, quantized)


def wrap(codec, local_rank):
    return DDP(codec, device_ids=[local_rank], broadcast_buffers=False)
