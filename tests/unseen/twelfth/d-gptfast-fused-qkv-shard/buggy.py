"""Tensor-parallel attention with a fused qkv weight held as DTensor."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class Attention(torch.nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.n_head = n_head
        self.wqkv = torch.nn.Parameter(torch.empty(3 * dim, dim))  # rows: all of q, then k, then v
        self.wo = torch.nn.Parameter(torch.empty(dim, dim))
        self.mesh = None

    def forward(self, x: DTensor) -> DTensor:
        # x: (batch, seq, dim), Replicate
        x = x.to_local(grad_placements=[Partial()])
        b, s, _ = x.shape
        q, k, v = F.linear(x, self.wqkv.to_local()).chunk(3, dim=-1)
        q, k, v = (t.view(b, s, self.n_head, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = F.linear(y.transpose(1, 2).reshape(b, s, -1), self.wo.to_local())
        return DTensor.from_local(y, self.mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()])


def shard_attention(attn: Attention, mesh):
    wqkv, wo = attn.wqkv.detach(), attn.wo.detach()
    wqkv = distribute_tensor(wqkv, mesh, [Shard(0)])  # BUG: a contiguous slice of the rows is not one rank's q, k and v
    attn.wqkv = torch.nn.Parameter(wqkv)
    attn.wo = torch.nn.Parameter(distribute_tensor(wo, mesh, [Shard(1)]))
    attn.n_head //= mesh.size()
    attn.mesh = mesh
