"""Loss function handed to Megatron, and what Megatron does with it (no context parallelism)."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def get_sum_of_sample_mean(loss_masks, calculate_per_token_loss):
    def sum_of_sample_mean(x):
        return sum((xi * m).sum() / torch.clamp_min(m.sum(), 1) for xi, m in zip(x, loss_masks))

    def sum_of_token(x):
        return sum((xi * m).sum() for xi, m in zip(x, loss_masks))

    return sum_of_token if calculate_per_token_loss else sum_of_sample_mean


def loss_function(args, batch, num_microbatches, per_token_losses):
    num_tokens = sum(torch.clamp_min(m.sum(), 1) for m in batch["loss_masks"])
    loss = get_sum_of_sample_mean(batch["loss_masks"], args.calculate_per_token_loss)(per_token_losses)
    if not args.calculate_per_token_loss:
        loss = loss * num_microbatches / args.global_batch_size * mpu.get_data_parallel_world_size()
    return loss, num_tokens if args.calculate_per_token_loss else 1, {"loss": loss.detach()}


def forward_step_calc_loss(config, loss, num_tokens, num_microbatches):
    """megatron.core.pipeline_parallel.schedules"""
    if not config.calculate_per_token_loss:
        loss = loss / num_tokens
        loss = loss / num_microbatches
    return loss


def finalize_model_grads(config, model, total_num_tokens):
    """megatron.core.distributed: total_num_tokens is the count of all micro-batches of this rank"""
    dp_group = mpu.get_data_parallel_group()
    for p in model.parameters():
        if not config.calculate_per_token_loss:
            p.main_grad.div_(mpu.get_data_parallel_world_size())
        dist.all_reduce(p.main_grad, group=dp_group)
    if config.calculate_per_token_loss:
        dist.all_reduce(total_num_tokens, group=dp_group)
        for p in model.parameters():
            p.main_grad.div_(total_num_tokens)
