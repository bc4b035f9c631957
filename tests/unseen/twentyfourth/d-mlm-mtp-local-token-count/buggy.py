"""Multi-token-prediction loss with per-token gradient normalisation.

After NVIDIA/Megatron-LM issue #7452, finding 3
(megatron/core/transformer/multi_token_prediction.py `process_mtp_loss`).
"""
import torch
import torch.distributed as dist


class MTPLossAutoScaler(torch.autograd.Function):
    """Attach the extra loss to the hidden states of the main model."""

    @staticmethod
    def forward(ctx, output, mtp_loss):
        ctx.save_for_backward(mtp_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (mtp_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(mtp_loss)


def roll_left(x):
    """Shift by one token along the sequence, the last position becomes zero."""
    x = torch.roll(x, shifts=-1, dims=-1)
    x[..., -1] = 0
    return x


def process_mtp_loss(main_hidden, mtp_hidden, labels, loss_mask, token_loss_fn, config, dp_group):
    # calculate_per_token_loss: token losses are summed here, finalize_grads divides every
    # gradient by the number of main-loss tokens of the global batch
    assert config.calculate_per_token_loss and config.num_microbatches == 1
    main_tokens = loss_mask.sum()
    for hidden in mtp_hidden:
        labels, loss_mask = roll_left(labels), roll_left(loss_mask)
        mtp_tokens = loss_mask.sum()
        mtp_loss = token_loss_fn(hidden, labels) * loss_mask
        scale = config.mtp_loss_scaling_factor / len(mtp_hidden)
        ratio = main_tokens / mtp_tokens.clamp(min=1)  # BUG: token counts of this rank only
        main_hidden = MTPLossAutoScaler.apply(main_hidden, scale * ratio * mtp_loss)
    return main_hidden


def finalize_grads(model, num_tokens, dp_group):
    """Sum over data-parallel ranks, then divide by the global token count."""
    total = num_tokens.clone()
    dist.all_reduce(total, group=dp_group)
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, group=dp_group)
            p.grad.div_(total)


def train_step(model, batch, token_loss_fn, config, dp_group, optimizer):
    optimizer.zero_grad()
    hidden, mtp_hidden = model(batch["tokens"])
    mask = batch["loss_mask"].float()
    hidden = process_mtp_loss(
        hidden, mtp_hidden, batch["labels"], mask, token_loss_fn, config, dp_group
    )
    loss = (token_loss_fn(hidden, batch["labels"]) * mask).sum()
    loss.backward()
    finalize_grads(model, mask.sum(), dp_group)
    optimizer.step()
    return loss.detach()
