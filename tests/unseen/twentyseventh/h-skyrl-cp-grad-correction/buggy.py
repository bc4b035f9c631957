"""Policy loss of the Megatron worker; sums of token losses become means only once."""
import torch
from megatron.core import parallel_state as mpu


def make_loss_func(batch, num_microbatches, total_tokens, eps_clip=0.2):
    # total_tokens: response tokens of the whole mini batch (all ranks, all micro batches)
    dp_size = mpu.get_data_parallel_world_size(with_context_parallel=True)  # BUG: the schedule already multiplies by cp
    grad_sum_correction_factor = num_microbatches * dp_size

    def loss_func(logprobs):
        # logprobs and batch hold this context-parallel rank's part of the sequence
        ratio = torch.exp(logprobs - batch["old_logprobs"])
        clipped = ratio.clamp(1 - eps_clip, 1 + eps_clip)
        advantages = batch["advantages"]
        token_loss = -torch.min(ratio * advantages, clipped * advantages)
        loss = (token_loss * batch["loss_mask"]).sum() / total_tokens
        return loss * grad_sum_correction_factor, {"policy_loss": loss.detach()}

    return loss_func


def forward_step_calc_loss(output_tensor, loss_func, num_microbatches):
    """Two-output form of megatron.core.pipeline_parallel.schedules."""
    loss, report = loss_func(output_tensor)
    loss = loss * mpu.get_context_parallel_world_size() / num_microbatches
    return loss, report


def finish_grad_sync(model):
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    for p in model.parameters():
        torch.distributed.all_reduce(p.main_grad, op=torch.distributed.ReduceOp.AVG, group=group)
