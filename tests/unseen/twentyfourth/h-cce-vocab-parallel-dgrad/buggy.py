"""Linear layer and cross entropy in one Function, classifier sharded over the vocabulary.

After apple/ml-cross-entropy PR #42 (cut_cross_entropy, vocab parallel).
"""
import torch
import torch.distributed as dist


class VocabParallelLinearCrossEntropy(torch.autograd.Function):
    """e: [n, d], the same on each rank; c: [vocab / tp, d]; targets: [n] in the whole vocabulary."""

    @staticmethod
    def forward(ctx, e, c, targets, ignore_index, group):
        rank, v = dist.get_rank(group), c.size(0)
        logits = (e @ c.t()).float()
        logits_max = logits.max(dim=-1).values
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        sum_exp = torch.exp(logits - logits_max.unsqueeze(-1)).sum(dim=-1)
        dist.all_reduce(sum_exp, group=group)
        lse = sum_exp.log() + logits_max

        owned = (targets >= rank * v) & (targets < (rank + 1) * v)
        local = (targets - rank * v).clamp(0, v - 1)
        picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * owned
        dist.all_reduce(picked, group=group)

        valid = targets != ignore_index
        ctx.save_for_backward(e, c, lse, local, owned, valid)
        ctx.group = group
        return (lse - picked) * valid

    @staticmethod
    def backward(ctx, grad_loss):
        e, c, lse, local, owned, valid = ctx.saved_tensors
        # the logits are computed again instead of being saved
        d_logits = torch.exp((e @ c.t()).float() - lse.unsqueeze(-1))
        d_logits.scatter_add_(-1, local.unsqueeze(-1), -owned.to(d_logits.dtype).unsqueeze(-1))
        d_logits *= (grad_loss * valid).unsqueeze(-1)
        d_logits = d_logits.to(e.dtype)
        d_e = d_logits @ c
        return d_e, d_logits.t() @ e, None, None, None  # BUG: d_e is the share of this vocabulary slice


class VocabParallelHead(torch.nn.Module):
    def __init__(self, hidden, vocab, group, ignore_index=-100):
        super().__init__()
        self.group, self.ignore_index = group, ignore_index
        self.weight = torch.nn.Parameter(torch.empty(vocab // dist.get_world_size(group), hidden))
        self.weight.tensor_model_parallel = True

    def forward(self, hidden_states, labels):
        # hidden_states: [b, s, d] complete on each rank; shift so that position i predicts i + 1
        e = hidden_states[:, :-1].reshape(-1, hidden_states.size(-1))
        targets = labels[:, 1:].reshape(-1)
        loss = VocabParallelLinearCrossEntropy.apply(
            e, self.weight, targets, self.ignore_index, self.group
        )
        return loss.sum() / (targets != self.ignore_index).sum().clamp(min=1)
