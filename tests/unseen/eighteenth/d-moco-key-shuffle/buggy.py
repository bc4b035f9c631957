"""Momentum contrast: shuffle the keys over the ranks before the key encoder.

Source: MoCo, _batch_shuffle_ddp (from memory). The permutation of the global batch has to be the
same on all ranks. Each rank draws its own here, so some images are encoded several times, some
never, and undoing the permutation gives each query the key of another image.
"""
from copy import deepcopy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def concat_all_gather(tensor):
    tensors = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors, tensor.contiguous())
    return torch.cat(tensors, dim=0)


class MoCo(torch.nn.Module):
    def __init__(self, encoder, dim=128, queue_size=65536, m=0.999, t=0.07):
        super().__init__()
        self.encoder_q, self.encoder_k = encoder, deepcopy(encoder).requires_grad_(False)
        self.m, self.t, self.queue_size = m, t, queue_size
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue_size), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _batch_shuffle(self, x):
        gathered = concat_all_gather(x)
        # seeds differ between the processes
        shuffle = torch.randperm(gathered.size(0), device=x.device)  # BUG
        unshuffle = torch.argsort(shuffle)
        mine = shuffle.view(dist.get_world_size(), -1)[dist.get_rank()]
        return gathered[mine], unshuffle

    @torch.no_grad()
    def _batch_unshuffle(self, k, unshuffle):
        mine = unshuffle.view(dist.get_world_size(), -1)[dist.get_rank()]
        return concat_all_gather(k)[mine]

    @torch.no_grad()
    def _enqueue(self, k):
        keys = concat_all_gather(k)
        ptr = int(self.queue_ptr)
        self.queue[:, ptr:ptr + keys.size(0)] = keys.t()
        self.queue_ptr[0] = (ptr + keys.size(0)) % self.queue_size

    def forward(self, im_q, im_k):
        # queue_size is a multiple of the global batch
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            for p_q, p_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
                p_k.mul_(self.m).add_(p_q, alpha=1 - self.m)
            im_k, unshuffle = self._batch_shuffle(im_k)
            k = self._batch_unshuffle(F.normalize(self.encoder_k(im_k), dim=1), unshuffle)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], dim=1)
        self._enqueue(k)
        return F.cross_entropy(logits / self.t, torch.zeros(len(q), dtype=torch.long, device=q.device))


def build(encoder, gpu):
    return DDP(MoCo(encoder).cuda(gpu), device_ids=[gpu])
