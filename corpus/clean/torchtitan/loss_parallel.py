"""Vocabulary-parallel cross entropy on local tensors, as a registered function with its own type check."""

import spmd_types as spmd
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

IGNORE_INDEX = -100


@spmd.register_autograd_function
class LossParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def typecheck_forward(logits, labels, tp_group, vocab):
        """Logits S(-1), labels I, loss I on the tensor-parallel axis."""
        spmd.assert_type(logits, {tp_group: spmd.S(logits.dim() - 1)})
        spmd.assert_type(labels, {tp_group: spmd.I})
        result = LossParallelCrossEntropy.apply(logits, labels, tp_group, vocab)
        output_type = dict(spmd.get_local_type(logits))
        output_type[tp_group] = spmd.I
        spmd.assert_type(result, output_type)
        return result

    @staticmethod
    def forward(ctx, logits, labels, tp_group, vocab):
        logits_2d = logits.flatten(0, -2).float()
        labels_1d = labels.flatten()
        size, rank = dist.get_world_size(tp_group), dist.get_rank(tp_group)
        chunk = (vocab + size - 1) // size
        start = min(vocab, chunk * rank)
        end = min(vocab, start + chunk)

        local_max = torch.amax(logits_2d, dim=-1, keepdim=True)
        local_max = funcol.all_reduce(local_max, reduceOp=dist.ReduceOp.MAX.name, group=tp_group)
        shifted = logits_2d - local_max
        total = torch.sum(torch.exp(shifted), dim=-1, keepdim=True)
        total = funcol.all_reduce(total, reduceOp=dist.ReduceOp.SUM.name, group=tp_group)
        log_probs = shifted - torch.log(total)

        valid = labels_1d != IGNORE_INDEX
        safe_labels = torch.where(valid, labels_1d, 0)
        outside = (safe_labels < start) | (safe_labels >= end)
        local_labels = safe_labels - start
        local_labels[outside] = 0
        picked = torch.gather(log_probs, 1, local_labels.unsqueeze(1)).squeeze(1)
        picked = picked.masked_fill(outside, 0.0)
        picked = funcol.all_reduce(picked, reduceOp=dist.ReduceOp.SUM.name, group=tp_group)
        loss = -torch.where(valid, picked, 0.0).sum()

        ctx.save_for_backward(log_probs, local_labels, outside, valid)
        ctx.shape, ctx.dtype = logits.shape, logits.dtype
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        log_probs, local_labels, outside, valid = ctx.saved_tensors
        grad = torch.exp(log_probs)
        rows = torch.arange(grad.size(0), device=grad.device)
        grad[rows, local_labels] -= (~outside).to(grad.dtype)
        grad = grad * valid.unsqueeze(-1) * grad_output
        return grad.view(ctx.shape).to(ctx.dtype), None, None, None


def head(hidden, weight, labels, tp_group, vocab):
    hidden = spmd.convert(hidden, tp_group, src=spmd.I, dst=spmd.R)
    logits = torch.nn.functional.linear(hidden, weight)
    return LossParallelCrossEntropy.apply(logits, labels, tp_group, vocab)
