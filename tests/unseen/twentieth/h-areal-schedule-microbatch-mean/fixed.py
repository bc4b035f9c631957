# AReaL, pull 1273: Megatron's schedule divides the loss of a microbatch by num_microbatches; the loss weights already
# add up to one over the whole batch, so the multiplier has to undo that division as well as DDP's average.
"""Megatron engine: one optimizer step over a list of microbatches."""
import functools

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func


class MegatronEngine:
    def train_batch(self, mb_list, loss_fn, loss_weight_fn):
        self.optimizer.zero_grad()
        total_loss_weight = torch.stack([loss_weight_fn(mb) for mb in mb_list]).sum().detach().clone()
        dist.all_reduce(total_loss_weight, group=mpu.get_data_parallel_group())
        loss_multiplier = mpu.get_data_parallel_world_size() * len(mb_list)

        def process_output(mb, output):
            scale = loss_weight_fn(mb) / total_loss_weight * loss_multiplier
            return loss_fn(output, mb) * scale, {}  # (loss, dict): the schedule averages over microbatches

        def forward_step(data_iterator, model):
            mb = next(data_iterator)
            return model(**mb["inputs"]), functools.partial(process_output, mb)

        get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=iter(mb_list),
            model=self.model,  # DistributedDataParallel averages gradients over data-parallel ranks
            num_microbatches=len(mb_list),
            seq_length=self.max_seqlen,
            micro_batch_size=1,
            forward_only=False,
        )
        return self.optimizer.step()
