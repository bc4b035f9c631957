# alibaba/ROLL commit 3a7b01f9
# When all tokens of a micro-batch are masked, masked_sum returns a fresh constant; that rank has nothing to
# differentiate, does not take part in the collectives of the FSDP backward and the job hangs or fails.
"""Actor update with token-level losses; the model is wrapped with FSDP2."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def masked_sum(tensor: torch.Tensor, mask: torch.Tensor, dim: int = None) -> torch.Tensor:
    if dim is not None:
        return (tensor * mask).sum(dim=dim)
    else:
        return (tensor * mask).sum() if mask.sum() > 0 else torch.tensor(0.0, device=tensor.device)  # BUG


def agg_loss(loss_mat, loss_mask, loss_agg_mode, batch_num_tokens, batch_num_seqs):
    """The global counts make micro-batches and ranks of different length add up to one mean."""
    if loss_agg_mode == "token-mean":
        return masked_sum(loss_mat, loss_mask) / batch_num_tokens
    if loss_agg_mode == "seq-mean-token-sum":
        return masked_sum(loss_mat, loss_mask, dim=-1).sum() / batch_num_seqs
    raise ValueError(loss_agg_mode)


def wrap(model):
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def train_step(model, optimizer, micro_batches, clip_eps, loss_agg_mode):
    """All ranks have the same number of micro-batches."""
    world_size = dist.get_world_size()
    counts = torch.stack(
        [
            sum(mb["response_mask"].sum() for mb in micro_batches).float(),
            torch.tensor(float(sum(mb["response_mask"].size(0) for mb in micro_batches)), device="cuda"),
        ]
    )
    dist.all_reduce(counts)
    batch_num_tokens, batch_num_seqs = counts.clamp(min=1.0)
    optimizer.zero_grad()
    for mb in micro_batches:
        log_probs = model(mb["input_ids"], mb["labels"])
        ratio = (log_probs - mb["old_log_probs"]).exp()
        advantages = mb["advantages"]
        loss_mat = -torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
        loss = agg_loss(loss_mat, mb["response_mask"].float(), loss_agg_mode, batch_num_tokens, batch_num_seqs)
        (loss * world_size).backward()  # FSDP averages over the world
    optimizer.step()
