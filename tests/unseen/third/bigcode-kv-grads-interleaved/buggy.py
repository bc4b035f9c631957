"""Optimizer of a multi-query model: reductions ahead of the step."""
# Source: bigcode-project/Megatron-LM issue 11 and pull request 12 (confirmed from the threads)
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from megatron import get_args, mpu


class MixedPrecisionOptimizer:
    """models: the model chunks this pipeline rank owns, several with an interleaved schedule."""

    def __init__(self, optimizer, models, clip_grad):
        self.optimizer, self.models, self.clip_grad = optimizer, models, clip_grad

    @staticmethod
    def _allreduce_coalesced(grads, group):
        if not grads:
            return
        coalesced = _flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=group)
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)

    def allreduce_layernorm_grads(self, args):
        if mpu.get_tensor_model_parallel_world_size() == 1 or not args.sequence_parallel:
            return
        grads = [
            param.main_grad
            for model in self.models
            for param in model.parameters()
            if getattr(param, "sequence_parallel", False)
        ]
        self._allreduce_coalesced(grads, mpu.get_tensor_model_parallel_group())

    def allreduce_key_value_grads(self, args):
        """The single key/value head is replicated and serves the local query heads."""
        if mpu.get_tensor_model_parallel_world_size() == 1 or args.attention_head_type != "multiquery":
            return
        named_params = self.models[0].named_parameters()  # BUG
        grads = [param.main_grad for name, param in named_params if ".key_value." in name]
        self._allreduce_coalesced(grads, mpu.get_tensor_model_parallel_group())

    def reduce_model_grads(self):
        args = get_args()
        self.allreduce_layernorm_grads(args)
        for model in self.models:
            model.allreduce_gradients()
        self.allreduce_key_value_grads(args)

    def step(self):
        self.reduce_model_grads()
        if self.clip_grad > 0.0:
            self.optimizer.clip_grad_norm(self.clip_grad)
        return self.optimizer.step()
