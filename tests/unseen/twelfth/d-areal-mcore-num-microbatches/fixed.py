"""One training batch of the Megatron engine (pipeline size 1)."""
import functools

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def forward_backward_no_pipelining(forward_step_func, data_iterator, model, num_microbatches):
    for _ in range(num_microbatches):
        output, loss_func = forward_step_func(data_iterator, model)
        loss, _ = loss_func(output)
        loss = loss / num_microbatches
        loss.backward()


def compute_total_loss_weight(mb_list, loss_weight_fn, dp_group):
    total = torch.stack([loss_weight_fn(mb) for mb in mb_list]).sum().detach().clone().float()
    dist.all_reduce(total, group=dp_group)
    return total


class MegatronEngine:
    def __init__(self, model, optimizer):
        # the wrapped DDP averages main_grad over the data parallel group
        self.model, self.optimizer = model, optimizer

    def train_batch(self, mb_list, loss_fn, loss_weight_fn):
        total_loss_weight = compute_total_loss_weight(mb_list, loss_weight_fn, mpu.get_data_parallel_group())
        loss_multiplier = mpu.get_data_parallel_world_size() * self.optimizer.get_loss_scale().item() * len(mb_list)

        def process_output(inputs, logits):
            # loss_fn: mean over the weight (valid tokens) of this micro-batch
            loss = loss_fn(logits, inputs)
            loss_scale = loss_weight_fn(inputs) / total_loss_weight * loss_multiplier
            return loss * loss_scale, {}

        def forward_step(batch_iter, model):
            mb = next(batch_iter)
            return model(mb["input_ids"]), functools.partial(process_output, mb)

        forward_backward_no_pipelining(forward_step, iter(mb_list), self.model, len(mb_list))
        return self.optimizer.step()
