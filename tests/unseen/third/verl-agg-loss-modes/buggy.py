"""Aggregation of policy losses over a mini-batch spread over data-parallel ranks."""
# Source: verl-project/verl pull request 5366 (confirmed from the thread)
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def masked_sum(values, mask):
    return (values * mask).sum()


def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size, batch_num_tokens, global_batch_size,
             loss_scale_factor=None):
    """loss_mat, loss_mask: [micro_batch, response_length] of this rank.

    batch_num_tokens and global_batch_size count the mini-batch over all ranks.
    """
    if loss_agg_mode == "token-mean":
        loss = masked_sum(loss_mat, loss_mask) / batch_num_tokens * dp_size
    elif loss_agg_mode == "seq-mean-token-sum":
        seq_losses = torch.sum(loss_mat * loss_mask, dim=-1)
        loss = torch.sum(seq_losses) / global_batch_size * dp_size
    elif loss_agg_mode == "seq-mean-token-mean":
        seq_losses = torch.sum(loss_mat * loss_mask, dim=-1) / loss_mask.sum(dim=-1).clamp(min=1)
        loss = torch.sum(seq_losses) / global_batch_size * dp_size
    elif loss_agg_mode == "seq-mean-token-sum-norm":
        seq_losses = torch.sum(loss_mat * loss_mask, dim=-1)
        loss = torch.sum(seq_losses) / (global_batch_size * loss_scale_factor)  # BUG
    else:
        raise ValueError(f"Invalid loss_agg_mode: {loss_agg_mode}")
    return loss


class DataParallelPPOActor:
    def __init__(self, config, model, optimizer, mesh):
        self.config, self.optimizer, self.mesh = config, optimizer, mesh
        self.model = fully_shard(model, mesh=mesh)

    def update_policy(self, micro_batches, policy_loss_fn):
        group, dp_size = self.mesh.get_group(), self.mesh.size()
        counts = torch.tensor(
            [sum(mb["response_mask"].sum().item() for mb in micro_batches),
             sum(mb["response_mask"].size(0) for mb in micro_batches)], device="cuda", dtype=torch.float32
        )
        dist.all_reduce(counts, group=group)
        self.optimizer.zero_grad()
        for mb in micro_batches:
            loss_mat = policy_loss_fn(self.model(mb["input_ids"]), mb)
            loss = agg_loss(
                loss_mat, mb["response_mask"], self.config.loss_agg_mode, dp_size,
                counts[0], counts[1], loss_scale_factor=self.config.loss_scale_factor,
            )
            loss.backward()
        self.optimizer.step()
