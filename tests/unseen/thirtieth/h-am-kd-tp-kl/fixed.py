"""Distillation losses for a student whose logits are sharded over the vocabulary."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn as nn


class _SumShards(torch.autograd.Function):
    """Sum over the tensor-parallel ranks; what follows is computed alike on all of them."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, op=dist.ReduceOp.SUM, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


def _global_max(logits, group):
    m = logits.detach().max(dim=-1, keepdim=True).values
    dist.all_reduce(m, op=dist.ReduceOp.MAX, group=group)
    return m


def _ce_forward_tp(student_logits, labels, group):
    local_vocab = student_logits.size(-1)
    start = dist.get_rank(group) * local_vocab
    shifted = student_logits - _global_max(student_logits, group)
    log_z = _SumShards.apply(shifted.exp().sum(dim=-1), group).log()
    local = labels - start
    owned = (local >= 0) & (local < local_vocab)
    picked = shifted.gather(-1, local.clamp(0, local_vocab - 1).unsqueeze(-1)).squeeze(-1)
    picked = _SumShards.apply(picked * owned, group)
    return log_z - picked


def _kl_forward_tp(student_logits, teacher_logits, group):
    with torch.no_grad():
        teacher = teacher_logits - _global_max(teacher_logits, group)
        t_sum = teacher.exp().sum(dim=-1, keepdim=True)
        dist.all_reduce(t_sum, group=group)
        t_logprob = teacher - t_sum.log()
        t_prob = t_logprob.exp()

    student = student_logits - _global_max(student_logits, group)
    # each rank uses the normaliser for its own slice of the vocabulary
    s_sum = dist_nn.all_reduce(student.exp().sum(dim=-1, keepdim=True), group=group)
    s_logprob = student - s_sum.log()

    kl = (t_prob * (t_logprob - s_logprob)).sum(dim=-1)
    return _SumShards.apply(kl, group)


class KDLoss(nn.Module):
    def __init__(self, tp_group, temperature=1.0, ignore_index=-100, kd_ratio=0.5):
        super().__init__()
        self.tp_group = tp_group
        self.temperature = temperature
        self.ignore_index = ignore_index
        self.kd_ratio = kd_ratio

    def forward(self, student_logits, teacher_logits, labels, num_label_tokens):
        valid = labels != self.ignore_index
        safe_labels = labels.masked_fill(~valid, 0)
        ce = _ce_forward_tp(student_logits.float(), safe_labels, self.tp_group)
        kl = _kl_forward_tp(
            student_logits.float() / self.temperature,
            teacher_logits.float() / self.temperature,
            self.tp_group,
        )
        kl = kl * self.temperature ** 2
        per_token = (1.0 - self.kd_ratio) * ce + self.kd_ratio * kl
        return (per_token * valid).sum() / num_label_tokens


def train_step(student, teacher, criterion, batch, optimizer, dp_group):
    n = (batch["labels"] != criterion.ignore_index).sum()
    dist.all_reduce(n, group=dp_group)
    with torch.no_grad():
        teacher_logits = teacher(batch["input_ids"])
    loss = criterion(student(batch["input_ids"]), teacher_logits, batch["labels"], n)
    loss.backward()
    for p in student.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=dp_group)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
