"""Sum-type policy loss on Megatron with context parallelism.

Source: https://github.com/NovaSky-AI/SkyRL/pull/1420
Wrong: the factor that undoes the averaging counts data-parallel ranks only, but the gradients are
averaged over data and context parallel ranks: 1/cp of the right gradient.
Repair: the size of the group that the averaging runs over.
"""
import torch
import torch.distributed as dist
import megatron.core.parallel_state as mpu


class GatherLogprobs(torch.autograd.Function):
    """Log-probabilities of all sequence chunks; backward hands each rank its own chunk."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.n, ctx.rank = x.size(1), group.rank()
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        return grad[:, ctx.rank * ctx.n:(ctx.rank + 1) * ctx.n].contiguous(), None


class MegatronModelWrapper:
    def __init__(self, model, policy_loss_fn):
        self.model, self.policy_loss_fn = model, policy_loss_fn

    def loss_func(self, local_logprobs, batch):
        # the whole sequence on each context-parallel rank
        logprobs = GatherLogprobs.apply(local_logprobs, mpu.get_context_parallel_group())
        # already divided by the number of sequences of the global batch
        policy_loss, metrics = self.policy_loss_fn(logprobs, batch["old_logprobs"], batch["advantages"])
        grad_sum_correction_factor = mpu.get_data_parallel_world_size()  # BUG: context-parallel ranks left out
        return policy_loss * grad_sum_correction_factor, metrics

    def finish_grad_sync(self):
        group = mpu.get_data_parallel_group(with_context_parallel=True)
        for p in self.model.parameters():
            p.main_grad.mul_(1.0 / group.size())
            dist.all_reduce(p.main_grad, group=group)
