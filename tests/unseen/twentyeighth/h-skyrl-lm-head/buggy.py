"""Fused LM head: log-probabilities computed chunk by chunk from the last hidden states."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def _reduce(input_, group):
    """All-reduce over the tensor-parallel group."""
    if dist.get_world_size(group) == 1:
        return input_
    dist.all_reduce(input_.contiguous(), group=group)  # BUG
    return input_


class _CopyToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce(grad_output, ctx.group), None


class _ChunkLogProb(torch.autograd.Function):
    """log p(label) for one chunk of tokens; logits are rebuilt in the backward pass."""

    @staticmethod
    def forward(ctx, hidden, weight, labels, group):
        rank = dist.get_rank(group)
        local_vocab = weight.size(0)
        logits = (hidden @ weight.t()).float()
        shift = logits.amax(-1)
        dist.all_reduce(shift, op=dist.ReduceOp.MAX, group=group)
        logits = logits - shift.unsqueeze(-1)
        index = labels - rank * local_vocab
        mine = (index >= 0) & (index < local_vocab)
        index = index.clamp(0, local_vocab - 1)
        stats = torch.stack([
            logits.exp().sum(-1),
            logits.gather(-1, index.unsqueeze(-1)).squeeze(-1) * mine,
        ])
        dist.all_reduce(stats, group=group)
        log_z = stats[0].log()
        ctx.save_for_backward(hidden, weight, index, mine, shift + log_z)
        return stats[1] - log_z

    @staticmethod
    def backward(ctx, grad_output):
        hidden, weight, index, mine, log_z = ctx.saved_tensors
        probs = ((hidden @ weight.t()).float() - log_z.unsqueeze(-1)).exp()
        grad_logits = -probs * grad_output.unsqueeze(-1)
        grad_logits.scatter_add_(-1, index.unsqueeze(-1), (grad_output * mine).unsqueeze(-1))
        grad_logits = grad_logits.to(hidden.dtype)
        return grad_logits @ weight, grad_logits.t() @ hidden, None, None


def fused_logprobs(hidden_states, weight, labels, chunk_size=2048):
    """Log-probabilities for ``hidden_states`` of shape [seq, batch, hidden].

    Returns a [batch, seq] tensor.
    """
    group = mpu.get_tensor_model_parallel_group()
    hidden_states = _CopyToTensorParallel.apply(hidden_states, group)
    hidden_states = hidden_states.transpose(0, 1)
    batch, seq, dim = hidden_states.shape
    flat, flat_labels = hidden_states.reshape(-1, dim), labels.reshape(-1)
    out = [
        _ChunkLogProb.apply(h, weight, y, group)
        for h, y in zip(flat.split(chunk_size), flat_labels.split(chunk_size))
    ]
    return torch.cat(out).view(batch, seq)


def policy_loss(model, batch, clip_eps=0.2):
    hidden = model.decoder_hidden_states(batch["input_ids"], batch["position_ids"])
    logps = fused_logprobs(hidden, model.output_layer.weight, batch["labels"])
    ratio = (logps - batch["old_logps"]).exp()
    advantages = batch["advantages"]
    loss = -torch.minimum(
        ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages
    )
    mask = batch["loss_mask"]
    return (loss * mask).sum() / mask.sum().clamp(min=1)
