# slime, pull 987: the factor num_microbatches * dp_cp / global_batch_size undoes the divisions of the schedule and of
# DDP; with calculate_per_token_loss neither divides, so the loss has to stay a plain sum over tokens.
"""Loss function of the Megatron backend and what happens to it afterwards."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def loss_function(args, token_loss, loss_masks, num_microbatches):
    if args.calculate_per_token_loss:
        loss = sum((x * m).sum() for x, m in zip(token_loss, loss_masks))
        num_tokens = sum(m.sum() for m in loss_masks)
    else:
        loss = sum((x * m).sum() / m.sum().clamp(min=1) for x, m in zip(token_loss, loss_masks))
        num_tokens = torch.ones((), device=loss.device)
    loss = loss * num_microbatches / args.global_batch_size * mpu.get_data_parallel_world_size()  # BUG: nothing to undo
    return loss, num_tokens


def forward_step_calc_loss(config, loss, num_tokens, num_microbatches):
    if not config.calculate_per_token_loss:
        loss = loss / num_tokens / num_microbatches
    return loss


def finalize_model_grads(config, model, total_num_tokens):
    group = mpu.get_data_parallel_group()
    dist.all_reduce(total_num_tokens, group=group)
    for p in model.parameters():
        if config.calculate_per_token_loss:
            dist.all_reduce(p.main_grad, group=group)
            p.main_grad.div_(total_num_tokens)
        else:
            dist.all_reduce(p.main_grad, op=dist.ReduceOp.AVG, group=group)
