"""Train step that the caller drives in three parts."""
import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.distributed.finalize_model_grads import finalize_model_grads


class PolicyWorker:
    def __init__(self, model: DistributedDataParallel, optimizer, config):
        # q/k layer norms and sequence-parallel norms are replicated over TP
        assert config.tensor_model_parallel_size > 1 and config.qk_layernorm and config.sequence_parallel
        self.model, self.optimizer, self.config = model, optimizer, config

    def begin_train_step(self):
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()

    def train_microbatch(self, batch, loss_fn):
        with self.model.no_sync():
            loss_fn(self.model(**batch)).backward()

    def finish_train_step(self):
        self.model.finish_grad_sync()  # BUG: data parallel only, the TP-replicated norms keep partial gradients
        ok, grad_norm, _ = self.optimizer.step()
        return ok, grad_norm
