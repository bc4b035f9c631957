"""Sequence-parallel gradient reduction of a model that may use either norm class."""
import torch
from megatron.core import parallel_state


class ApexLayerNorm(torch.nn.LayerNorm):
    def __init__(self, hidden_size, sequence_parallel):
        super().__init__(hidden_size)
        for p in self.parameters():
            p.sequence_parallel_enabled = sequence_parallel


class MCoreLayerNorm(torch.nn.LayerNorm):
    def __init__(self, hidden_size, sequence_parallel):
        super().__init__(hidden_size)
        for p in self.parameters():
            p.sequence_parallel = sequence_parallel


class MegatronGPTModel:
    def __init__(self, cfg):
        norm_cls = MCoreLayerNorm if cfg.mcore_gpt else ApexLayerNorm
        self.final_norm = norm_cls(cfg.hidden_size, cfg.sequence_parallel)  # runs on sequence shards

    def allreduce_sequence_parallel_gradients(self):
        for param in self.final_norm.parameters():
            if getattr(param, "sequence_parallel_enabled", False):  # BUG: the mcore norm carries another mark
                torch.distributed.all_reduce(
                    param.main_grad, group=parallel_state.get_tensor_model_parallel_group()
                )
