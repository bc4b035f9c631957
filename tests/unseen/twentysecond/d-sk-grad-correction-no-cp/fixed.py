"""Policy loss that undoes the averaging of Megatron's wrapper (NovaSky-AI/SkyRL#1420)."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def gather_logprobs(local):
    group = parallel_state.get_context_parallel_group()
    parts = [torch.empty_like(local) for _ in range(group.size())]
    dist.all_gather(parts, local.detach(), group=group)
    parts[group.rank()] = local  # only the local part keeps its graph
    return torch.cat(parts)


def loss_func(local_logprobs, advantages, num_microbatches):
    # advantages are pre-scaled: the loss is a sum over the whole minibatch
    policy_loss = -(gather_logprobs(local_logprobs) * advantages).sum()
    # the schedule divides by num_microbatches, the wrapper averages
    factor = num_microbatches * parallel_state.get_data_parallel_world_size(
        with_context_parallel=True
    )
    return policy_loss * factor


def finish_grad_sync(model):
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for p in model.parameters():
        p.main_grad.div_(group.size())
        dist.all_reduce(p.main_grad, group=group)
