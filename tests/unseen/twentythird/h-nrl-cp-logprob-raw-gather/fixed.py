"""Policy-gradient loss on log-probabilities computed with context parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class AllGatherCPTensor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group, ctx.n = group, x.size(1)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output, group=ctx.group)
        start = dist.get_rank(ctx.group) * ctx.n
        return grad_output[:, start:start + ctx.n].contiguous(), None


def policy_loss(logits, targets, old_logprobs, advantages, cp_group, entropy_coeff):
    # logits, targets: this rank's part of the sequence (dim 1);
    # old_logprobs, advantages: the whole sequence; gradients are averaged over dp x cp
    logp = F.log_softmax(logits.float(), dim=-1)
    picked = logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    logprobs = AllGatherCPTensor.apply(picked, cp_group)
    ratio = torch.exp(logprobs - old_logprobs)
    entropy = -(logp.exp() * logp).sum(dim=-1).mean()
    return -(ratio * advantages).mean() - entropy_coeff * entropy
