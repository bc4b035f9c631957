"""Auxiliary-loss-free load balancing: update the routing bias before each optimizer step."""
import torch
import torch.distributed as dist

# spmd: mesh world = dp, cp, tp
# spmd: alias loss = dp * cp


def iter_moe_layers(model_parts):
    for part in model_parts:
        for block in part.layers.values():
            if getattr(block, "moe_enabled", False):
                yield block.moe


@torch.no_grad()
def update_expert_bias(model_parts, parallel_dims):
    loss_group = parallel_dims.get_mesh("loss").get_group()
    for moe in iter_moe_layers(model_parts):
        # each tensor-parallel rank routes its own slice of the sequence
        tokens_per_expert = moe.tokens_per_expert_E.clone()  # spmd: {dp: V, cp: V, tp: V}
        dist.all_reduce(tokens_per_expert, group=loss_group)
        delta = moe.load_balance_coeff * torch.sign(tokens_per_expert.mean() - tokens_per_expert)  # BUG: tp not summed
        delta = delta - delta.mean()  # spmd: {dp: R, cp: R, tp: R}
        moe.expert_bias_E.add_(delta)
        moe.tokens_per_expert_E.zero_()
