"""Context-parallel causal attention: queries stay sharded, keys and values are gathered (DTensor + local_map)."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import local_map

SEQ = 2  # [batch, heads, seq, head_dim]


def _chunk_attention(q, k, v, offset):
    rows = torch.arange(q.size(SEQ), device=q.device) + offset
    cols = torch.arange(k.size(SEQ), device=q.device)
    mask = rows[:, None] >= cols[None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class AllGatherKVAttention:
    def __init__(self, cp_mesh):
        self.mesh = cp_mesh
        self.fn = local_map(
            _chunk_attention,
            out_placements=[Shard(SEQ)],
            in_placements=([Shard(SEQ)], [Replicate()], [Replicate()], None),
            in_grad_placements=([Shard(SEQ)], [Partial()], [Partial()], None),
            device_mesh=cp_mesh,
        )

    def __call__(self, q, k, v):
        q, k, v = (DTensor.from_local(t, self.mesh, [Shard(SEQ)]) for t in (q, k, v))
        offset = self.mesh.get_local_rank() * q.to_local().size(SEQ)
        k = k.redistribute(placements=[Replicate()])
        v = v.redistribute(placements=[Replicate()])
        return self.fn(q, k, v, offset).to_local()
