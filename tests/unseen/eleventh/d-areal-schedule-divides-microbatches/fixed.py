"""Training step of the Megatron engine: loss normalised by the weight of the global batch.

Reduced from inclusionAI/AReaL 5e9fb505c9 (fix(megatron): compensate pipeline schedule's
/num_microbatches in grad, #1273).
"""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func


class MegatronEngine:
    """self.model is wrapped in DistributedDataParallel: gradients are averaged over data ranks."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train_batch(self, mb_list, loss_fn, loss_weight_fn, seq_length, micro_batch_size):
        total_weight = torch.stack([loss_weight_fn(mb) for mb in mb_list]).sum()
        dist.all_reduce(total_weight, group=mpu.get_data_parallel_group())

        loss_multiplier = mpu.get_data_parallel_world_size() * len(mb_list)

        def forward_step(batch_iter, model):
            mb = next(batch_iter)

            def process_output(logits):
                loss = loss_fn(logits, mb)  # mean over this micro batch
                return loss * loss_weight_fn(mb) / total_weight * loss_multiplier, {}

            return model(mb["input_ids"], mb["position_ids"], None), process_output

        get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=iter(mb_list),
            model=self.model,
            num_microbatches=len(mb_list),
            seq_length=seq_length,
            micro_batch_size=micro_batch_size,
        )
        return self.optimizer.step()
