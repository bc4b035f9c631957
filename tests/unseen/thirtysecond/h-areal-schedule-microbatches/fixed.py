"""Training batch on a Megatron schedule with globally weighted losses.
inclusionAI/AReaL #1273, "compensate pipeline schedule's /num_microbatches in grad".
"""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def forward_step_calc_loss(output_tensor, loss_func, num_microbatches, calculate_per_token_loss):
    outputs = loss_func(output_tensor)
    if len(outputs) == 3:
        loss, num_tokens, reduced = outputs
        if not calculate_per_token_loss:
            loss = loss / torch.clamp(num_tokens, min=1) / num_microbatches
    else:
        loss, reduced = outputs
        loss = loss / num_microbatches
    return loss, reduced


def forward_backward_no_pipelining(forward_fn, mb_list, calculate_per_token_loss=False):
    stats = []
    for mb in mb_list:
        output_tensor, loss_func = forward_fn(mb)
        loss, reduced = forward_step_calc_loss(output_tensor, loss_func, len(mb_list), calculate_per_token_loss)
        loss.backward()
        stats.append(reduced)
    return stats


class MegatronEngine:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer  # the DDP wrapper averages over dp

    def train_batch(self, mb_list, loss_fn, loss_weight_fn):
        """loss_fn: mean over the valid tokens of a micro-batch; loss_weight_fn: their number."""
        dp_group = mpu.get_data_parallel_group()
        total_loss_weight = torch.stack([loss_weight_fn(mb) for mb in mb_list]).sum().float()
        dist.all_reduce(total_loss_weight, group=dp_group)
        loss_multiplier = dist.get_world_size(dp_group) * len(mb_list) * self.optimizer.get_loss_scale()

        def forward_fn(mb):
            def loss_func(output):
                scale = loss_weight_fn(mb) / total_loss_weight * loss_multiplier
                return loss_fn(output, mb) * scale, {}

            return self.model(**mb["forward_inputs"]), loss_func

        self.optimizer.zero_grad()
        forward_backward_no_pipelining(forward_fn, mb_list)
        self.model.finish_grad_sync()
        return self.optimizer.step()
