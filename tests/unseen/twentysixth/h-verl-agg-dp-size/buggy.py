# verl #5366
"""Loss aggregation that must not depend on the number of FSDP ranks or micro-batches."""
import torch
import torch.distributed as dist


def masked_sum(values, mask):
    return (values * mask).sum()


def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size, batch_num_tokens=None, loss_scale_factor=None):
    """The result is used for backward directly; FSDP averages gradients over dp_size ranks."""
    if loss_agg_mode == "token-mean":
        loss = masked_sum(loss_mat, loss_mask) / batch_num_tokens * dp_size
    elif loss_agg_mode == "seq-mean-token-sum-norm":
        if loss_scale_factor is None:
            raise ValueError(f"{loss_agg_mode=} needs a constant loss_scale_factor")
        seq_losses = torch.sum(loss_mat * loss_mask, dim=-1)
        loss = torch.sum(seq_losses) / loss_scale_factor  # BUG: shrinks with the number of data ranks
    else:
        raise ValueError(f"Invalid loss_agg_mode: {loss_agg_mode}")
    return loss


def update_policy(actor_module, micro_batches, policy_loss_fn, config, dp_group, optimizer):
    # actor_module: fully_shard-ed over dp_group
    dp_size = dist.get_world_size(dp_group)
    num_tokens = torch.stack([mb["response_mask"].sum() for mb in micro_batches]).sum()
    dist.all_reduce(num_tokens, group=dp_group)
    optimizer.zero_grad()
    for mb in micro_batches:
        loss_mat = policy_loss_fn(actor_module(mb["input_ids"]), mb)
        loss = agg_loss(
            loss_mat, mb["response_mask"], config.loss_agg_mode, dp_size,
            batch_num_tokens=num_tokens, loss_scale_factor=config.loss_scale_factor,
        )
        loss.backward()
    optimizer.step()
