"""Train step of a policy worker, split into begin, microbatch and finish."""
import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func


class MegatronPolicyWorker:
    def __init__(self, model: DistributedDataParallel, optimizer, forward_step_func):
        # model: TP > 1, q/k layernorms ([head_dim], replicated) act on the local heads
        self.model, self.optimizer = model, optimizer
        self.forward_step_func = forward_step_func
        self.forward_backward_func = get_forward_backward_func()

    def begin_train_step(self):
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        self.model.config.finalize_model_grads_func = None  # once per step, not per microbatch

    def train_microbatch(self, data_iterator, seq_length, micro_batch_size):
        return self.forward_backward_func(
            forward_step_func=self.forward_step_func,
            data_iterator=data_iterator,
            model=self.model,
            num_microbatches=1,
            seq_length=seq_length,
            micro_batch_size=micro_batch_size,
            forward_only=False,
        )

    def finish_train_step(self):
        self.model.finish_grad_sync()  # BUG: reduces over DP only, norm gradients stay partial over TP
        return self.optimizer.step()
