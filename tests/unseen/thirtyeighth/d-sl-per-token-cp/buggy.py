"""Loss function handed to the Megatron schedule."""
# thread: THUDM/slime#987
import torch
from megatron.core import mpu

from slime.backends.megatron_utils.cp_utils import get_logits_and_tokens_offset_with_cp


def get_sum_of_sample_mean(total_lengths, response_lengths, loss_masks, calculate_per_token_loss):
    """Reduces a concatenation of this CP rank's response chunks.

    loss_masks hold whole responses; means are taken over whole responses too, so that
    the results of the CP ranks add up to the value of one sample.
    """
    chunked_masks = []
    for total_length, response_length, mask in zip(total_lengths, response_lengths, loss_masks):
        prompt_length = total_length - response_length
        _, _, _, offsets = get_logits_and_tokens_offset_with_cp(total_length, response_length)
        chunked_masks.append(
            torch.cat([mask[start - prompt_length : end - prompt_length] for start, end in offsets])
        )
    lengths = [m.size(0) for m in chunked_masks]

    def sum_of_sample_mean(x):
        parts = x.split(lengths, dim=0)
        return sum(
            (p * c).sum() / torch.clamp_min(m.sum(), 1)
            for p, c, m in zip(parts, chunked_masks, loss_masks)
        )

    def sum_of_token(x):
        parts = x.split(lengths, dim=0)
        return sum((p * c).sum() for p, c in zip(parts, chunked_masks))

    return sum_of_token if calculate_per_token_loss else sum_of_sample_mean


def loss_function(args, batch, num_microbatches, logits, loss_fn):
    num_tokens = sum([torch.clamp_min(mask.sum(), 1) for mask in batch["loss_masks"]])
    num_samples = len(batch["response_lengths"])
    reducer = get_sum_of_sample_mean(
        batch["total_lengths"],
        batch["response_lengths"],
        batch["loss_masks"],
        args.calculate_per_token_loss,
    )
    loss, log = loss_fn(args, batch, logits, reducer)

    if not args.calculate_per_token_loss:
        # the schedule divides by num_microbatches, DDP by dp x cp
        loss = (
            loss
            * num_microbatches
            / args.global_batch_size
            * mpu.get_data_parallel_world_size(with_context_parallel=True)
        )

    # finalize_model_grads divides by the normalizer summed over dp x cp
    normalizer = num_tokens if args.calculate_per_token_loss else 1  # BUG: whole responses counted on each cp rank, the loss is cp times too small
    keys, values = list(log.keys()), torch.tensor(
        [num_tokens if args.calculate_per_token_loss else num_samples, *log.values()], device=logits.device
    )
    return loss, torch.as_tensor(normalizer, dtype=torch.int, device=logits.device), {"keys": keys, "values": values}
