"""Policy loss for the Megatron backend.

Source: https://github.com/NovaSky-AI/SkyRL/pull/1420
"""
import torch
from megatron.core import parallel_state as mpu


def gather_logprobs(local, cp_group):
    """Log-probabilities of the whole sequence; backward keeps the slice of this rank."""
    world, rank = torch.distributed.get_world_size(cp_group), torch.distributed.get_rank(cp_group)
    parts = [torch.empty_like(local) for _ in range(world)]
    torch.distributed.all_gather(parts, local.detach().contiguous(), group=cp_group)
    parts[rank] = local
    return torch.cat(parts, dim=1)


def make_loss_func(policy_loss_fn, num_microbatches):
    # forward_backward divides by num_microbatches, finalize averages over DP and CP
    grad_sum_correction_factor = mpu.get_data_parallel_world_size(with_context_parallel=True)

    def loss_func(local_logprobs, data):
        logprobs = gather_logprobs(local_logprobs, mpu.get_context_parallel_group())
        per_token = policy_loss_fn(logprobs, data["old_logprobs"], data["advantages"])
        # share of this data rank in the token mean of the global batch
        policy_loss = (per_token * data["mask"]).sum() / data["global_num_tokens"]
        return policy_loss * num_microbatches * grad_sum_correction_factor

    return loss_func


def forward_backward(model, micro_batches, policy_loss_fn):
    n = len(micro_batches)
    loss_func = make_loss_func(policy_loss_fn, n)
    for data in micro_batches:
        (loss_func(model(data), data) / n).backward()


def finalize(model):
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    for p in model.parameters():
        torch.distributed.all_reduce(p.grad, op=torch.distributed.ReduceOp.AVG, group=group)
