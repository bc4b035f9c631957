"""Policy loss with an entropy bonus on vocab-parallel logits."""
# verl (Megatron actor): the entropy was computed by a softmax over the local part of the vocabulary; fixed by vocab_parallel_entropy.
import torch
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, vocab_parallel_cross_entropy


class _VocabParallelEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits):
        group = mpu.get_tensor_model_parallel_group()
        logits_max = vocab_parallel_logits.max(dim=-1, keepdim=True).values
        torch.distributed.all_reduce(logits_max, op=torch.distributed.ReduceOp.MAX, group=group)
        normalized = vocab_parallel_logits - logits_max
        exp = normalized.exp()
        total = exp.sum(dim=-1, keepdim=True)
        torch.distributed.all_reduce(total, group=group)
        softmax = exp / total
        sum_softmax_times_logits = (softmax * vocab_parallel_logits).sum(dim=-1, keepdim=True)
        torch.distributed.all_reduce(sum_softmax_times_logits, group=group)
        entropy = logits_max + total.log() - sum_softmax_times_logits
        ctx.save_for_backward(vocab_parallel_logits, softmax, sum_softmax_times_logits)
        return entropy.squeeze(-1)

    @staticmethod
    def backward(ctx, grad_output):
        logits, softmax, sum_softmax_times_logits = ctx.saved_tensors
        return grad_output.unsqueeze(-1) * softmax * (sum_softmax_times_logits - logits)


def vocab_parallel_entropy(vocab_parallel_logits):
    return _VocabParallelEntropy.apply(vocab_parallel_logits)


def entropy_from_logits(logits):
    pd = F.softmax(logits, dim=-1)
    return torch.logsumexp(logits, dim=-1) - torch.sum(pd * logits, dim=-1)


class LMHead(torch.nn.Module):
    def __init__(self, weight_shard):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)
        self.weight.tensor_model_parallel = True

    def forward(self, hidden_states):
        # logits: [s, b, vocab/tp]
        return F.linear(copy_to_tensor_model_parallel_region(hidden_states), self.weight)


def policy_loss(head: LMHead, hidden_states, responses, old_log_prob, advantages, mask, entropy_coeff):
    logits = head(hidden_states)
    entropy = entropy_from_logits(logits)  # BUG: softmax over this rank's part of the vocabulary
    log_prob = -vocab_parallel_cross_entropy(logits.clone(), responses)
    ratio = torch.exp(log_prob - old_log_prob)
    pg_loss = -(advantages * ratio * mask).sum() / mask.sum()
    entropy_loss = (entropy * mask).sum() / mask.sum()
    return pg_loss - entropy_coeff * entropy_loss
