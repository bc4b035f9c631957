"""Gradients of the parameters which FSDP does not manage.

Reduced from NVIDIA/NeMo 2e396060f6 (Fix FSDP gradient reduction with orig params, #9335).
"""
import torch
from megatron.core import parallel_state
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class MegatronGPTModel:
    def configure_fsdp(self, model):
        # the word embeddings are shared between two wrapped units, they stay replicated
        self.model = FSDP(
            model,
            process_group=parallel_state.get_data_parallel_group(),
            ignored_states=list(model.shared_embedding_parameters()),
            use_orig_params=True,
        )

    def allreduce_fsdp_sharding_omitted_gradients(self):
        """Average gradients of FSDP-sharding-omitted parameters in the data-parallel domain."""
        grads = []
        for param in self.model._ignored_params:
            if param.requires_grad and param.grad is not None:
                grads.append(param.grad.data)
        if len(grads) > 0:
            coalesced = torch._utils._flatten_dense_tensors(grads)
            coalesced /= parallel_state.get_data_parallel_world_size()
            torch.distributed.all_reduce(coalesced, group=parallel_state.get_data_parallel_group())
            for buf, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
                buf.copy_(synced)

    def training_step(self, batch, optimizer):
        self.model(batch).backward()
        self.allreduce_fsdp_sharding_omitted_gradients()
        optimizer.step()
