"""Token log-probabilities from logits that are cut by vocabulary (RL on a megatron model)."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


@torch.no_grad()
def _compute_distributed_log_softmax(logits, group):
    logits_max = torch.amax(logits, dim=-1, keepdim=True)
    dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
    logits = logits - logits_max
    sum_exp = logits.exp().sum(-1, keepdim=True).float()
    dist.all_reduce(sum_exp, op=dist.ReduceOp.SUM, group=group)
    return logits - sum_exp.log_().to(logits.dtype)


class DistributedLogprob(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, vocab_start_index, vocab_end_index, group):
        target_mask = (target < vocab_start_index) | (target >= vocab_end_index)
        masked_target = target - vocab_start_index
        masked_target[target_mask] = 0
        log_softmax = _compute_distributed_log_softmax(vocab_parallel_logits, group)
        log_probs = torch.gather(log_softmax, -1, masked_target.unsqueeze(-1)).squeeze(-1)
        log_probs[target_mask] = 0.0
        dist.all_reduce(log_probs, op=dist.ReduceOp.SUM, group=group)
        ctx.save_for_backward(log_softmax.exp(), target_mask, masked_target)
        return log_probs

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target = ctx.saved_tensors
        chosen = (~target_mask).unsqueeze(-1) * torch.nn.functional.one_hot(
            masked_target, num_classes=softmax.size(-1)
        )
        return chosen.float().sub_(softmax).mul_(grad_output.unsqueeze(-1)), None, None, None, None


def from_parallel_logits_to_logprobs(logits, target):
    group = mpu.get_tensor_model_parallel_group()
    rank = mpu.get_tensor_model_parallel_rank()
    size = logits.size(-1)
    probs = DistributedLogprob.apply(logits, target.roll(-1, -1), rank * size, (rank + 1) * size, group)
    return probs[:, :-1]
