# Source: THUDM/slime commit 763f18d5b (PR #987), slime/backends/megatron_utils/loss.py
# With calculate_per_token_loss Megatron sums the gradients and divides them by the global
# number of tokens. The loss was nevertheless rescaled for the averaging path
# (num_microbatches / global_batch_size * dp size), which changes the gradients once more.
# Repair: rescale only when calculate_per_token_loss is off.
from argparse import Namespace

import torch
from megatron.core import mpu


def get_sum_of_sample_mean(response_lengths, loss_masks, calculate_per_token_loss):
    def per_sample(x):
        parts = zip(x.split(response_lengths, dim=0), loss_masks)
        return sum((p * m).sum() / torch.clamp_min(m.sum(), 1) for p, m in parts)

    def per_token(x):
        return sum((p * m).sum() for p, m in zip(x.split(response_lengths, dim=0), loss_masks))

    return per_token if calculate_per_token_loss else per_sample


def loss_function(args: Namespace, batch, num_microbatches: int, logits: torch.Tensor):
    num_tokens = sum([torch.clamp_min(loss_mask.sum(), 1) for loss_mask in batch["loss_masks"]])
    num_samples = len(batch["response_lengths"])
    sum_of_sample_mean = get_sum_of_sample_mean(
        batch["response_lengths"], batch["loss_masks"], args.calculate_per_token_loss
    )
    loss, log = args.loss_fn(args, batch, logits, sum_of_sample_mean)

    loss = (  # BUG
        loss * num_microbatches / args.global_batch_size * mpu.get_data_parallel_world_size(with_context_parallel=True)
    )

    # megatron: loss / num_microbatches and mean over dp x cp without per-token loss,
    # else plain sum over dp x cp and division by the all-reduced num_tokens
    return (
        loss,
        num_tokens if args.calculate_per_token_loss else 1,
        {
            "keys": list(log.keys()),
            "values": torch.tensor(
                [num_samples if not args.calculate_per_token_loss else num_tokens] + list(log.values()),
                device=logits.device,
            ),
        },
    )
