# NeMo 2e396060f6 (PR #9335): with use_orig_params=True no parameter is a FlatParameter any more, so the
# all-reduce meant for sharding-omitted parameters also mixes the already reduce-scattered FSDP shards.
import torch
from megatron.core import parallel_state
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

from nemo.collections.nlp.models.language_modeling.megatron_base_model import MegatronBaseModel


class MegatronGPTModel(MegatronBaseModel):
    def setup_fsdp(self, sharding_omitted_modules):
        ignored = [p for m in sharding_omitted_modules for p in m.parameters()]
        self.model = FullyShardedDataParallel(
            self.model,
            process_group=parallel_state.get_data_parallel_group(),
            sharding_strategy=ShardingStrategy.FULL_SHARD,
            ignored_states=ignored,
            use_orig_params=True,
        )

    def training_step(self, dataloader_iter):
        self._optimizer.zero_grad()
        loss_mean = self.fwd_bwd_step(dataloader_iter, forward_only=False)
        self.allreduce_fsdp_sharding_omitted_gradients()
        return loss_mean

    def allreduce_fsdp_sharding_omitted_gradients(self):
        """All-reduce gradients of FSDP-sharding-omitted parameters in sharding domain (data-parallel domain)."""
        assert isinstance(self.model, torch.nn.Module)
        grads = []
        for param in self.model.parameters():
            if param in self.model._ignored_params and param.requires_grad and param.grad is not None:
                grads.append(param.grad.data)
        if len(grads) > 0:
            coalesced = torch._utils._flatten_dense_tensors(grads)
            torch.distributed.all_reduce(
                coalesced,
                op=torch.distributed.ReduceOp.AVG,
                group=parallel_state.get_data_parallel_group(),
            )
            for buf, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
                buf.copy_(synced)
