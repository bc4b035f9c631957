# thread: https://github.com/OpenPipe/ART/pull/920
"""Scoring pass of a gated delta-net layer under context parallelism: every rank holds a chunk of the sequence."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class ChunkSummary:
    """Affine map of the recurrent state over one chunk: s_out = decay * s_in + update."""

    decay: torch.Tensor
    update: torch.Tensor


def summarize_chunk(q, k, v, beta, g) -> ChunkSummary:
    state = torch.zeros(k.size(0), k.size(2), k.size(3), v.size(3), device=k.device, dtype=torch.float32)
    decay = torch.ones(k.size(0), k.size(2), 1, 1, device=k.device, dtype=torch.float32)
    for t in range(k.size(1)):
        gate = g[:, t].exp()[..., None, None]
        outer = (beta[:, t, :, None] * k[:, t])[..., None] * v[:, t][..., None, :]
        state = gate * state + outer
        decay = gate * decay
    return ChunkSummary(decay, state)


def _exchange_summaries(summary: ChunkSummary, group) -> list:
    world = dist.get_world_size(group)
    decays = [torch.empty_like(summary.decay) for _ in range(world)]
    updates = [torch.empty_like(summary.update) for _ in range(world)]
    dist.all_gather(decays, summary.decay.contiguous(), group=group)
    dist.all_gather(updates, summary.update.contiguous(), group=group)
    return [ChunkSummary(d, u) for d, u in zip(decays, updates)]


def _prefix_state(summaries, rank):
    state = torch.zeros_like(summaries[0].update)
    for summary in summaries[:rank]:
        state = summary.decay * state + summary.update
    return state


def _broadcast_chain_final_state(final_state: torch.Tensor, group) -> torch.Tensor:
    """The state behind the last chunk, on every rank of the context-parallel group."""
    cp_size = dist.get_world_size(group)
    out = final_state.contiguous().clone()
    dist.broadcast(out, src=dist.get_global_rank(group, cp_size - 1), group=group)
    return out


class GatedDeltaNetCP(nn.Module):
    def __init__(self, hidden, heads, head_dim, cp_group):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.in_proj = nn.Linear(hidden, 3 * heads * head_dim + 2 * heads, bias=False)
        self.out_proj = nn.Linear(heads * head_dim, hidden, bias=False)
        self.cp_group = cp_group

    def split(self, x):
        b, s, _ = x.shape
        width = self.heads * self.head_dim
        q, k, v, beta, g = self.in_proj(x).split([width, width, width, self.heads, self.heads], dim=-1)
        q, k, v = (t.view(b, s, self.heads, self.head_dim) for t in (q, k, v))
        return q, nn.functional.normalize(k, dim=-1), v, beta.sigmoid(), nn.functional.logsigmoid(g)

    @torch.no_grad()
    def score(self, x, return_state=False):
        q, k, v, beta, g = self.split(x)
        summary = summarize_chunk(q, k, v, beta, g)
        summaries = _exchange_summaries(summary, self.cp_group)
        state = _prefix_state(summaries, dist.get_rank(self.cp_group))
        outs = []
        for t in range(x.size(1)):
            gate = g[:, t].exp()[..., None, None]
            state = gate * state + (beta[:, t, :, None] * k[:, t])[..., None] * v[:, t][..., None, :]
            outs.append(torch.einsum("bhd,bhde->bhe", q[:, t], state))
        y = self.out_proj(torch.stack(outs, dim=1).flatten(2))
        if return_state:
            return y, _broadcast_chain_final_state(state, self.cp_group)
        return y


def build_cp_groups(tp_size: int, cp_size: int):
    """Tensor-parallel ranks are adjacent, context-parallel ranks are strided by tp_size."""
    world, rank, mine = dist.get_world_size(), dist.get_rank(), None
    for base in range(0, world, tp_size * cp_size):
        for tp_rank in range(tp_size):
            ranks = [base + tp_rank + i * tp_size for i in range(cp_size)]
            group = dist.new_group(ranks)
            if rank in ranks:
                mine = group
    return mine
