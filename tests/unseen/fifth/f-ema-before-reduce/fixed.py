"""Codebook update of a vector quantiser under data parallelism."""
import torch
import torch.distributed as dist


@torch.no_grad()
def update_codebook(codebook, cluster_size, embed_avg, flat, onehot, decay, group):
    count = onehot.sum(0)
    dist.all_reduce(count, group=group)
    embed_sum = onehot.t() @ flat
    dist.all_reduce(embed_sum, group=group)
    cluster_size.mul_(decay).add_(count, alpha=1 - decay)
    embed_avg.mul_(decay).add_(embed_sum, alpha=1 - decay)
    codebook.copy_(embed_avg / cluster_size.unsqueeze(1))
