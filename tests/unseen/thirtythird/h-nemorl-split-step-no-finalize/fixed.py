"""Policy worker: one-call training step and the split forward_backward / optim_step interface.

Source: https://github.com/NVIDIA-NeMo/RL/issues/3716
Wrong: the split path turns the schedule's finalize callback off and later only finishes the
data-parallel reduction; the TP sum of q/k norms (and of norms under sequence parallelism), which
the callback also does, is lost and the TP copies drift apart.
Repair: call the whole finalize function in optim_step.
"""
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func


def allreduce_layernorm_grads(model, config):
    grads = []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        sp = config.sequence_parallel and getattr(p, "sequence_parallel", False)
        if sp or "q_layernorm" in name or "k_layernorm" in name:
            grads.append(p.main_grad)
    for g in grads:
        dist.all_reduce(g, group=parallel_state.get_tensor_model_parallel_group())


def finalize_model_grads(model, config):
    model.finish_grad_sync()  # reduction over data and context parallel ranks
    allreduce_layernorm_grads(model, config)


class MegatronPolicyWorker:
    def __init__(self, model, optimizer, config):
        self.model, self.optimizer, self.config = model, optimizer, config
        self.forward_backward_func = get_forward_backward_func()

    def train(self, data_iterator, forward_step, num_microbatches):
        self.config.finalize_model_grads_func = lambda m, *_: finalize_model_grads(self.model, self.config)
        losses = self._run(data_iterator, forward_step, num_microbatches)
        self.optimizer.step()
        return losses

    def forward_backward(self, data_iterator, forward_step, num_microbatches):
        # may be called several times before optim_step
        self.config.finalize_model_grads_func = None
        with self.model.no_sync():
            return self._run(data_iterator, forward_step, num_microbatches)

    def optim_step(self):
        finalize_model_grads(self.model, self.config)
        self.optimizer.step()
        self.model.zero_grad_buffer()

    def _run(self, data_iterator, forward_step, num_microbatches):
        return self.forward_backward_func(
            forward_step_func=forward_step, data_iterator=data_iterator, model=self.model,
            num_microbatches=num_microbatches, seq_length=None, micro_batch_size=1,
        )
