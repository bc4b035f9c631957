# Build the expert-parallel and expert-data-parallel process groups of a MoE trainer.
import torch.distributed as dist

_EP_GROUP = None
_EDP_GROUP = None


def init_moe_groups(ep_size):
    global _EP_GROUP, _EDP_GROUP
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size % ep_size != 0:
        raise ValueError(f"world size {world_size} is not divisible by ep_size {ep_size}")
    num_ep_groups = world_size // ep_size

    for i in range(num_ep_groups):
        ranks = list(range(i * ep_size, (i + 1) * ep_size))
        if rank in ranks:
            _EP_GROUP = dist.new_group(ranks)  # BUG

    for j in range(ep_size):
        ranks = list(range(j, world_size, ep_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            _EDP_GROUP = group


def get_ep_group():
    return _EP_GROUP


def get_edp_group():
    return _EDP_GROUP


def build_moe(layer_cls, num_experts, ep_size, **kwargs):
    init_moe_groups(ep_size)
    return layer_cls(
        num_local_experts=num_experts // ep_size,
        moe_group=get_ep_group(),
        sync_group=get_edp_group(),
        **kwargs,
    )
