"""Megatron policy worker: fused train call and the split train-step API."""
# Source: NVIDIA-NeMo/RL issue 3716 (confirmed from the thread)
import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel


def allreduce_replicated_grads(model, config):
    """qk-layernorm weights, and layernorm weights with sequence parallelism."""
    if config.tensor_model_parallel_size == 1:
        return
    for name, param in model.named_parameters():
        qk_norm = config.qk_layernorm and ("q_layernorm" in name or "k_layernorm" in name)
        sp = config.sequence_parallel and getattr(param, "sequence_parallel", False)
        if param.requires_grad and (qk_norm or sp):
            torch.distributed.all_reduce(
                param.main_grad, group=parallel_state.get_tensor_model_parallel_group()
            )


class MegatronPolicyWorker:
    def __init__(self, config, ddp_config, model, optimizer, scheduler):
        self.config = config
        self.model = DistributedDataParallel(config, ddp_config, model)
        self.optimizer, self.scheduler = optimizer, scheduler

    def _forward_backward(self, microbatches, loss_fn, global_valid_tokens):
        dp_size = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
        metrics = []
        for mb in microbatches:
            log_probs = self.model(mb["input_ids"], mb["position_ids"], None, labels=mb["labels"])
            loss, info = loss_fn(log_probs, mb, global_valid_tokens)
            (loss * dp_size).backward()
            metrics.append(info)
        return metrics

    def _finish(self):
        self.model.finish_grad_sync()
        allreduce_replicated_grads(self.model, self.config)

    def train(self, microbatches, loss_fn, global_valid_tokens):
        self.model.zero_grad_buffer()
        metrics = self._forward_backward(microbatches, loss_fn, global_valid_tokens)
        self._finish()
        _, grad_norm, _ = self.optimizer.step()
        self.scheduler.step(increment=1)
        return metrics, grad_norm

    def begin_train_step(self):
        self.model.zero_grad_buffer()
        self._pending = []

    def forward_backward(self, microbatches, loss_fn, global_valid_tokens):
        self._pending += self._forward_backward(microbatches, loss_fn, global_valid_tokens)

    def finish_train_step(self):
        self.model.finish_grad_sync()  # BUG
        _, grad_norm, _ = self.optimizer.step()
        self.scheduler.step(increment=1)
        return self._pending, grad_norm
