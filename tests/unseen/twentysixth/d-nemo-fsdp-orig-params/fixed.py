# NeMo 2e396060f6 (#9335)
"""Parameters left out of FSDP sharding get their gradients reduced by hand."""
import torch
from megatron.core import parallel_state
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class MegatronGPTModel:
    def __init__(self, model, sharding_omitted_params, optimizer_class, lr):
        self.model = FSDP(
            model,
            process_group=parallel_state.get_data_parallel_group(),
            ignored_states=sharding_omitted_params,
            use_orig_params=True,
        )
        self.optimizer = optimizer_class(self.model.parameters(), lr=lr)

    def allreduce_fsdp_sharding_omitted_gradients(self):
        grads = []
        for param in self.model.parameters():
            if param in self.model._ignored_params and param.requires_grad and param.grad is not None:
                grads.append(param.grad.data)
        if grads:
            group = parallel_state.get_data_parallel_group()
            coalesced = _flatten_dense_tensors(grads)
            torch.distributed.all_reduce(coalesced, group=group)
            coalesced.div_(torch.distributed.get_world_size(group))
            for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
                buf.copy_(synced)

    def training_step(self, batch, loss_func):
        self.optimizer.zero_grad()
        loss = loss_func(self.model(batch["tokens"]), batch)
        loss.backward()
        self.allreduce_fsdp_sharding_omitted_gradients()
        self.optimizer.step()
        return loss.detach()
