"""Train step split in begin / microbatch / finish calls (NVIDIA-NeMo/RL#3716)."""
from megatron.core.distributed import DistributedDataParallel
from megatron.core.distributed.finalize_model_grads import finalize_model_grads


class MegatronPolicyWorker:
    def __init__(self, model: DistributedDataParallel, optimizer, forward_backward):
        # model.config: TP 2, qk_layernorm on head-sharded queries and keys
        self.model, self.optimizer = model, optimizer
        self.forward_backward = forward_backward

    def begin_train_step(self):
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()

    def train_microbatch(self, data):
        with self.model.no_sync():
            return self.forward_backward(data, self.model)

    def finish_train_step(self):
        finalize_model_grads([self.model])
        return self.optimizer.step()
