"""Vector quantizer that trains its codebook in place."""
# thread: lucidrains/vector-quantize-pytorch#222
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, make_optimizer):
        super().__init__()
        embed = torch.randn(codebook_size, dim, device="cuda")
        dist.broadcast(embed, src=0)
        self.embed = nn.Parameter(embed)
        self.in_place_codebook_optimizer = make_optimizer([self.embed])

    def update_codebook(self, x, index):
        with torch.enable_grad():
            loss = F.mse_loss(self.embed[index], x.detach())
            (grad,) = torch.autograd.grad(loss, [self.embed])
        self.embed.grad = grad  # BUG: DDP ignores this parameter, so each rank moves its own copy
        self.in_place_codebook_optimizer.step()
        self.in_place_codebook_optimizer.zero_grad()

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        index = torch.cdist(flat.detach(), self.embed.detach()).argmin(dim=-1)
        quantized = self.embed.detach()[index].view_as(x)
        if self.training:
            self.update_codebook(flat, index)
        return x + (quantized - x).detach(), F.mse_loss(x, quantized)


def wrap(autoencoder, local_rank):
    ignore = [n for n, _ in autoencoder.named_parameters() if n.endswith("quantizer.embed")]
    DDP._set_params_and_buffers_to_ignore_for_model(autoencoder, ignore)
    return DDP(autoencoder, device_ids=[local_rank])
