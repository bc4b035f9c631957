# AReaL 5e9fb505c (#1273)
"""One optimizer step of the Megatron engine over variable-length micro-batches."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func


def compute_total_loss_weight(mb_list, loss_weight_fn, group):
    total = sum(loss_weight_fn(mb) for mb in mb_list).detach().clone().float()
    dist.all_reduce(total, group=group)
    return total


class MegatronEngine:
    def __init__(self, model, optimizer):
        # model: DistributedDataParallel, gradients are averaged over data-parallel ranks
        self.model, self.optimizer = model, optimizer

    def train_batch(self, mb_list, loss_fn, loss_weight_fn):
        self.optimizer.zero_grad()
        total_loss_weight = compute_total_loss_weight(mb_list, loss_weight_fn, mpu.get_data_parallel_group())
        loss_multiplier = (
            mpu.get_data_parallel_world_size() * self.optimizer.get_loss_scale().item()  # BUG: the schedule divides once more
        )

        def process_output(mb, output):
            loss = loss_fn(output, mb)  # mean over the micro-batch
            loss = loss * loss_weight_fn(mb) / total_loss_weight * loss_multiplier
            return loss, {}  # two values: the schedule divides the loss by num_microbatches

        def forward_step(data_iterator, model):
            mb = next(data_iterator)
            return model(mb["input_ids"], mb["position_ids"], None), lambda out: process_output(mb, out)

        get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=iter(mb_list),
            model=self.model,
            num_microbatches=len(mb_list),
            seq_length=mb_list[0]["input_ids"].shape[1],
            micro_batch_size=1,
            forward_only=False,
        )
        return self.optimizer.step()
