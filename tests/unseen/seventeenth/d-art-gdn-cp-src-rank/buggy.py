# Source: OpenPipe/ART issue #919, PR #920, src/art/megatron/gdn/fla_cp.py
# torch.distributed.broadcast takes a global rank as src. The chain state is broadcast from
# cp_size - 1, an index within the context-parallel group. With TP or DP > 1 that is another rank.
# Repair: dist.get_global_rank(group, cp_size - 1).
from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def _exchange_summary(summary: Tensor, group: dist.ProcessGroup) -> list[Tensor]:
    parts = [torch.empty_like(summary) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, summary.contiguous(), group=group)
    return parts


def _prefix_state(initial_state: Tensor, decays: list[Tensor], states: list[Tensor], cp_rank: int) -> Tensor:
    """State that enters this rank's chunk: the chunks of lower cp ranks, applied in order."""
    state = initial_state
    for r in range(cp_rank):
        state = decays[r] @ state + states[r]
    return state


def _broadcast_chain_final_state(final_state: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The state after the last token is known on the last rank of the context-parallel group."""
    cp_size = dist.get_world_size(group)
    final_state = final_state.contiguous().clone()
    dist.broadcast(final_state, src=cp_size - 1, group=group)  # BUG
    return final_state


@torch.no_grad()
def chunk_gated_delta_rule_cp_states(
    decay: Tensor,
    state: Tensor,
    initial_state: Tensor,
    cp_group: dist.ProcessGroup,
) -> tuple[Tensor, Tensor]:
    """decay, state: summary of this rank's part of the sequence.

    Returns the state that enters this part and the state at the end of the sequence.
    """
    cp_rank = dist.get_rank(cp_group)
    decays = _exchange_summary(decay, cp_group)
    states = _exchange_summary(state, cp_group)
    entering = _prefix_state(initial_state, decays, states, cp_rank)
    leaving = decay @ entering + state
    return entering, _broadcast_chain_final_state(leaving, cp_group)


def build_cp_group(tp_size: int, cp_size: int) -> dist.ProcessGroup:
    # tp is the innermost axis: the cp groups are strided
    own = None
    rank, world = dist.get_rank(), dist.get_world_size()
    for start in range(0, world, tp_size * cp_size):
        for t in range(tp_size):
            ranks = [start + t + c * tp_size for c in range(cp_size)]
            group = dist.new_group(ranks)
            if rank in ranks:
                own = group
    return own
