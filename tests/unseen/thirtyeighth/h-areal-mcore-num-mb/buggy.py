"""Training step of the Megatron engine."""
# thread: areal-project/AReaL#1273
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.distributed import finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.utils import get_model_config


class MegatronEngine:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        config = get_model_config(model[0])
        config.finalize_model_grads_func = finalize_model_grads
        config.calculate_per_token_loss = False

    def _total_loss_weight(self, mb_list, loss_weight_fn):
        total = torch.stack([loss_weight_fn(mb) for mb in mb_list]).sum().cuda()
        dist.all_reduce(total, group=mpu.get_data_parallel_group())
        return total

    def train_batch(self, mb_list, loss_fn, loss_weight_fn):
        """loss_fn returns the mean over a microbatch, loss_weight_fn its number of tokens."""
        self.optimizer.zero_grad()
        for chunk in self.model:
            chunk.zero_grad_buffer()
        total_loss_weight = self._total_loss_weight(mb_list, loss_weight_fn)
        # DDP averages over data parallel ranks, and the schedule treats the two-tuple
        # (loss, {}) of a microbatch as a mean: it divides it by num_microbatches
        loss_multiplier = (
            mpu.get_data_parallel_world_size()
            * self.optimizer.get_loss_scale().item()  # BUG: the schedule's division by num_microbatches is not undone
        )

        def forward_step(batch_iter, model):
            mb = next(batch_iter)
            output = model(
                input_ids=mb["input_ids"], position_ids=mb["position_ids"], attention_mask=None
            )

            def _process_output(output_):
                loss = loss_fn(output_, mb)
                loss = loss * (loss_weight_fn(mb).cuda() / total_loss_weight)
                return loss * loss_multiplier, {}

            return output, _process_output

        get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=iter(mb_list),
            model=self.model if len(self.model) > 1 else self.model[0],
            num_microbatches=len(mb_list),
            seq_length=mb_list[0]["input_ids"].size(1),
            micro_batch_size=1,
            forward_only=False,
        )
        update_successful, grad_norm, _ = self.optimizer.step()
        return dict(update_successful=float(update_successful), grad_norm=grad_norm)
