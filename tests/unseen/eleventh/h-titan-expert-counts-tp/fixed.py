"""Load-balancing hook: moves the expert bias of the router after each step.

Reduced from pytorch/torchtitan f3660a493a ([spmd_types] fix MoE routing bias TP reduce, #4154).
"""
import torch
from torch.distributed.tensor import DTensor

# spmd: mesh dense = dp, cp, tp; alias loss = dp * cp


@torch.no_grad()
def update_expert_bias(model_parts, parallel_dims):
    """With expert parallelism, as here, each TP rank routes its own part of the sequence."""
    assert parallel_dims.ep_enabled
    loss_mesh = parallel_dims.get_mesh("loss")
    moe_layers = [b.moe for part in model_parts for b in part.layers.values() if b.moe_enabled]
    counts = torch.vstack([moe.tokens_per_expert_E for moe in moe_layers])  # spmd: {dp: V, cp: V, tp: V}

    if isinstance(counts, DTensor):
        counts = counts.to_local()
    torch.distributed.all_reduce(counts, group=parallel_dims.get_mesh("tp").get_group())
    torch.distributed.all_reduce(counts, group=loss_mesh.get_group())

    for moe, tokens_per_expert in zip(moe_layers, counts.float()):
        # spmd: tokens_per_expert: {dp: R, cp: R, tp: R}
        delta = moe.load_balance_coeff * torch.sign(tokens_per_expert.mean() - tokens_per_expert)
        moe.expert_bias_E.add_(delta - delta.mean())
        moe.tokens_per_expert_E.zero_()
