# NVIDIA-NeMo/Speech (NeMo) pull request 7184
"""GPT training step with sequence-parallel layer norms."""
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from megatron.core import parallel_state


class FusedLayerNorm(torch.nn.LayerNorm):
    """Layer norm of apex.transformer: works on this rank's slice of the sequence."""

    def __init__(self, hidden_size, eps=1e-5, sequence_parallel_enabled=False):
        super().__init__(hidden_size, eps=eps)
        self.sequence_parallel_enabled = sequence_parallel_enabled
        setattr(self.weight, "sequence_parallel_enabled", sequence_parallel_enabled)
        setattr(self.bias, "sequence_parallel_enabled", sequence_parallel_enabled)


class MegatronGPTModel:
    def __init__(self, cfg, model, optimizer):
        self.cfg, self.model, self.optimizer = cfg, model, optimizer

    def _append_sequence_parallel_module_grads(self, module, grads):
        for param in module.parameters():
            sequence_parallel_param = getattr(param, "sequence_parallel", False) or getattr(
                param, "sequence_parallel_enabled", False
            )
            if sequence_parallel_param and param.requires_grad:
                grads.append(param.grad.data)

    def allreduce_sequence_parallel_gradients(self):
        """Layer-norm gradients are computed on a part of the sequence and summed over TP."""
        grads = []
        self._append_sequence_parallel_module_grads(self.model, grads)
        if not grads:
            return
        coalesced = _flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)

    def allreduce_gradients(self):
        group = parallel_state.get_data_parallel_group()
        for param in self.model.parameters():
            param.grad.div_(parallel_state.get_data_parallel_world_size())
            torch.distributed.all_reduce(param.grad, group=group)

    def training_step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model(**batch)
        loss.backward()
        if self.cfg.tensor_model_parallel_size > 1 and self.cfg.sequence_parallel:
            self.allreduce_sequence_parallel_gradients()
        self.allreduce_gradients()
        self.optimizer.step()
        return loss.detach()
