"""Reduction of model gradients in the mixed-precision optimizer."""
# thread: bigcode-project/Megatron-LM#12
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn.parallel.distributed import DistributedDataParallel as torchDDP

from megatron import mpu
from megatron.model import DistributedDataParallel as LocalDDP
from megatron.model import Float16Module
from megatron.utils import unwrap_model


class MegatronOptimizer:
    def __init__(self, optimizer, models):
        self.optimizer = optimizer
        # one model chunk per virtual pipeline stage of this rank
        self.models = models

    def _coalesced_all_reduce(self, grads, group):
        if len(grads) == 0:
            return
        coalesced = _flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=group)
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)

    def allreduce_layernorm_grads(self, args):
        if mpu.get_tensor_model_parallel_world_size() == 1 or not args.sequence_parallel:
            return
        grads = []
        for model_module in self.models:
            unwrapped_model = unwrap_model(model_module, (torchDDP, LocalDDP, Float16Module))
            for param in unwrapped_model.parameters():
                if getattr(param, "sequence_parallel", False):
                    grads.append(param.main_grad.data)
        self._coalesced_all_reduce(grads, mpu.get_tensor_model_parallel_group())

    def allreduce_key_value_grads(self, args):
        """The key/value projection of multi-query attention is replicated over TP ranks,
        each of which only attends with its own query heads. With sequence parallelism
        these parameters carry the sequence_parallel mark."""
        if (
            args.attention_head_type != "multiquery"
            or mpu.get_tensor_model_parallel_world_size() == 1
            or args.sequence_parallel
        ):
            return
        grads = []
        for model_module in self.models:
            unwrapped_model = unwrap_model(model_module, (torchDDP, LocalDDP, Float16Module))
            for layer in unwrapped_model.language_model.encoder.layers:
                for param in layer.self_attention.key_value.parameters():
                    grads.append(param.main_grad.data)
        self._coalesced_all_reduce(grads, mpu.get_tensor_model_parallel_group())

    def reduce_model_grads(self, args, timers):
        self.allreduce_layernorm_grads(args)
        self.allreduce_key_value_grads(args)
        if args.DDP_impl == "local":
            timers("backward-params-all-reduce").start()
            for model in self.models:
                model.allreduce_gradients()
            timers("backward-params-all-reduce").stop()
