"""Train step of a Megatron policy split into begin, microbatch and finish calls.

Source: NVIDIA-NeMo/RL issue #3716, PR #3660.
"""
import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig


class MegatronPolicyWorker:
    def __init__(self, config: TransformerConfig, ddp_config, gpt_model, optimizer):
        assert config.sequence_parallel and config.qk_layernorm
        assert not ddp_config.overlap_grad_reduce
        self.model = DistributedDataParallel(config, ddp_config, gpt_model)
        self.optimizer = optimizer
        self.model.config.finalize_model_grads_func = None
        self.model.config.grad_sync_func = None
        self.forward_backward = get_forward_backward_func()

    def begin_train_step(self):
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()

    def train_microbatch(self, forward_step, data_iterator, seq_length, num_microbatches, mbs):
        with self.model.no_sync():
            return self.forward_backward(
                forward_step_func=forward_step,
                data_iterator=data_iterator,
                model=[self.model],
                num_microbatches=num_microbatches,
                seq_length=seq_length,
                micro_batch_size=mbs,
                forward_only=False,
            )

    def finish_train_step(self):
        finalize_model_grads([self.model], None)
        success, grad_norm, _ = self.optimizer.step()
        lr_group = parallel_state.get_model_parallel_group()
        ok = torch.tensor([float(success)], device="cuda")
        torch.distributed.all_reduce(ok, op=torch.distributed.ReduceOp.MIN, group=lr_group)
        return bool(ok.item()), grad_norm
