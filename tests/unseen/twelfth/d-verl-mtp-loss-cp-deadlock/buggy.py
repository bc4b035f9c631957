"""Collect multi-token-prediction losses after a pipeline step of the Megatron engine."""
import torch
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func


class MTPLossLoggingHelper:
    tracker = {}

    @staticmethod
    def reduce_loss_in_tracker():
        values = MTPLossLoggingHelper.tracker["values"]  # losses of this rank's part of the sequences
        torch.distributed.all_reduce(
            values, op=torch.distributed.ReduceOp.AVG, group=mpu.get_data_parallel_group(with_context_parallel=True)
        )
        return values


def get_megatron_mtp_loss(n_micro_batch):
    mtp_losses = MTPLossLoggingHelper.reduce_loss_in_tracker() / n_micro_batch
    output = {f"mtp_losses/mtp_{i + 1}_loss": loss.item() for i, loss in enumerate(mtp_losses)}
    MTPLossLoggingHelper.tracker.clear()
    return output


class MegatronEngine:
    def is_mp_src_rank_with_outputs(self):
        return (
            mpu.get_tensor_model_parallel_rank() == 0
            and mpu.get_pipeline_model_parallel_rank() == mpu.get_pipeline_model_parallel_world_size() - 1
            and mpu.get_context_parallel_rank() == 0
        )

    def forward_backward_batch(self, batch_generator, n_micro_batch, forward_only=False):
        losses_reduced = get_forward_backward_func()(
            forward_step_func=self.forward_step,
            data_iterator=batch_generator,
            model=self.module,
            num_microbatches=n_micro_batch,
            seq_length=1,  # the communication shape is obtained via p2p comm
            micro_batch_size=1,
            forward_only=forward_only,
        )
        if self.model_config.mtp.enable and self.is_mp_src_rank_with_outputs():  # BUG: only context parallel rank 0 enters an all-reduce over dp x cp
            metrics = get_megatron_mtp_loss(n_micro_batch)
            losses_reduced[0].setdefault("metrics", {}).update(metrics)
        return losses_reduced if mpu.is_pipeline_last_stage(ignore_virtual=True) else []
