"""Cross entropy over a split vocabulary: MAX and SUM reductions forward, a local gradient, scaled for sequence parallelism."""

import torch
import torch.distributed as dist
from colossalai.shardformer.layer._operation import reduce_forward
from torch.autograd import Function


class DistCrossEntropy(Function):
    @staticmethod
    def forward(ctx, vocab_logits, target, ignore_index, process_group, vocab_size, dtype=torch.float32):
        logits_max = torch.max(vocab_logits, dim=-1)[0]
        handle = dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=process_group, async_op=True)

        rank = dist.get_rank(group=process_group)
        world_size = dist.get_world_size(group=process_group)
        partition = vocab_size // world_size
        down_threshold = rank * partition
        up_threshold = down_threshold + partition
        mask = (target < down_threshold) | (target >= up_threshold)
        masked_target = target.clone() - down_threshold
        masked_target[mask] = 0
        masked_target_1d = masked_target.view(-1).contiguous()
        handle.wait()

        vocab_logits = vocab_logits - logits_max.unsqueeze(dim=-1)
        logits_2d = vocab_logits.view(-1, partition)
        pred_logits_1d = logits_2d[torch.arange(logits_2d.shape[0], device=logits_2d.device), masked_target_1d]
        pred_logits = pred_logits_1d.contiguous().view_as(target)
        pred_logits[mask] = 0.0

        exp_logits = torch.exp(vocab_logits.float())
        sum_exp_logits = torch.sum(exp_logits, dim=-1)
        # One message for both sums.
        both = torch.stack([pred_logits.float(), sum_exp_logits])
        dist.all_reduce(both, op=dist.ReduceOp.SUM, group=process_group)
        pred_logits, sum_exp_logits = both.unbind(0)

        loss = torch.where(target == ignore_index, 0.0, torch.log(sum_exp_logits) - pred_logits)
        num_non_zero = torch.sum(target != ignore_index).clamp(min=1)
        ctx.inv_num_non_zero = 1.0 / num_non_zero
        loss = torch.sum(loss) / num_non_zero

        softmax = exp_logits / sum_exp_logits.unsqueeze(dim=-1)
        ctx.save_for_backward(softmax.to(dtype), mask, masked_target_1d, target)
        ctx.ignore_index = ignore_index
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, mask, masked_target_1d, target = ctx.saved_tensors
        grad_logits = softmax.clone()
        grad_logits_2d = grad_logits.view(-1, softmax.shape[-1])
        update = 1.0 - mask.view(-1).float()
        grad_logits_2d[torch.arange(0, grad_logits_2d.shape[0], device=grad_logits.device), masked_target_1d] -= update
        keep = (target != ctx.ignore_index).unsqueeze(-1)
        grad_logits = grad_logits * keep * (grad_output * ctx.inv_num_non_zero)
        return grad_logits, None, None, None, None, None


def cross_entropy_1d(logits, labels, ignore_index=-100, process_group=None, vocab_size=None):
    return DistCrossEntropy.apply(logits, labels, ignore_index, process_group, vocab_size)


def dist_cross_entropy(labels, logits, shard_config, vocab_size):
    """The labels are shifted already, before the sequence was split; with sequence parallelism the losses of the parts are summed, divided by the number of all valid tokens."""
    sp_group = shard_config.sequence_parallel_process_group
    if shard_config.enable_tensor_parallelism:
        loss = cross_entropy_1d(
            logits.view(-1, logits.size(-1)), labels.view(-1), -100, shard_config.tensor_parallel_process_group, vocab_size
        )
    else:
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
    if shard_config.enable_sequence_parallelism:
        count = (labels != -100).sum()
        total = count.clone()
        dist.all_reduce(total, group=sp_group)
        loss = reduce_forward(loss * count / total, sp_group)
    return loss
