"""Process groups of an expert-parallel model."""
import torch.distributed as dist


def create_moe_groups(world_size, ep_size):
    rank = dist.get_rank()
    ep_id, ep_rank = divmod(rank, ep_size)
    num_ep = world_size // ep_size

    # ranks that exchange tokens
    moe_comm_group = None
    for i in [ep_id]:  # BUG: new_group is collective, every rank must create every group
        group = dist.new_group([i * ep_size + j for j in range(ep_size)])
        if i == ep_id:
            moe_comm_group = group

    # ranks that hold the same experts
    moe_sync_group = None
    for j in range(ep_size):
        group = dist.new_group([i * ep_size + j for i in range(num_ep)])
        if j == ep_rank:
            moe_sync_group = group
    return moe_comm_group, moe_sync_group


def sync_gradients(model, world_group, moe_sync_group):
    for p in model.parameters():
        if p.grad is None:
            continue
        group = moe_sync_group if getattr(p, "is_expert", False) else world_group
        p.grad.div_(dist.get_world_size(world_group))
        dist.all_reduce(p.grad, group=group)
