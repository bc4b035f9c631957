# pytorch/pytorch issue 190746, pull request 191479
"""Log-softmax and negative log-likelihood on logits sharded over the class dimension."""
import torch
import torch.distributed as dist


class LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x_max = x.amax(dim=-1, keepdim=True)
        dist.all_reduce(x_max, op=dist.ReduceOp.MAX, group=group)
        shifted = x - x_max
        sumexp = shifted.exp().sum(dim=-1, keepdim=True)
        dist.all_reduce(sumexp, group=group)
        output = shifted - sumexp.log()
        ctx.save_for_backward(output)
        ctx.group = group
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (output,) = ctx.saved_tensors
        grad_sum = grad_output.sum(dim=-1, keepdim=True)
        dist.all_reduce(grad_sum, group=ctx.group)
        grad_input = grad_output - output.exp() * grad_sum
        return grad_input, None


class NLLLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, log_probs, target, group):
        n_local = log_probs.size(-1)
        local = target - dist.get_rank(group) * n_local
        owned = (local >= 0) & (local < n_local)
        local = local.clamp(0, n_local - 1)
        picked = log_probs.gather(-1, local.unsqueeze(-1)).squeeze(-1) * owned
        dist.all_reduce(picked, group=group)
        ctx.save_for_backward(log_probs, local, owned)
        return -picked.mean()

    @staticmethod
    def backward(ctx, grad_output):
        log_probs, local, owned = ctx.saved_tensors
        grad_input = torch.zeros_like(log_probs)
        grad_input.scatter_(-1, local.unsqueeze(-1), -owned.to(log_probs.dtype).unsqueeze(-1))
        grad_input = grad_input * grad_output / owned.numel()
        return grad_input, None, None


class SumOverClasses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, partial, group):
        partial = partial.clone()
        dist.all_reduce(partial, group=group)
        return partial

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


def cross_entropy(logits_shard, target, group):
    return NLLLoss.apply(LogSoftmax.apply(logits_shard, group), target, group)


def distillation_loss(logits_shard, teacher_probs_shard, group):
    weighted = LogSoftmax.apply(logits_shard, group) * teacher_probs_shard
    return -SumOverClasses.apply(weighted.sum(dim=-1), group).mean()
