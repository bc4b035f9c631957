"""Shardformer policy: replace the norms of a Llama model under sequence parallelism."""
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaModel
from colossalai.shardformer.layer.utils import SeqParallelUtils
from colossalai.shardformer.policies.base_policy import Policy, SubModuleReplacementDescription


class RMSNorm:
    @staticmethod
    def from_native_module(module, sp_partial_derived=False, **kwargs):
        if sp_partial_derived:  # the plugin sums gradients of marked parameters over the sp group
            SeqParallelUtils.marked_as_sp_partial_derived_param(module.weight)
        return module


class LlamaPolicy(Policy):
    def module_policy(self):
        policy = {}
        # the sequence is split at the embedding and gathered after the final norm
        kwargs = {"sp_partial_derived": self.shard_config.enable_sequence_parallelism}
        self.append_or_create_submodule_replacement(
            description=[
                SubModuleReplacementDescription(suffix=s, target_module=RMSNorm, kwargs=kwargs)
                for s in ("input_layernorm", "post_attention_layernorm")
            ],
            policy=policy,
            target_key=LlamaDecoderLayer,
        )
        self.append_or_create_submodule_replacement(
            description=SubModuleReplacementDescription(suffix="norm", target_module=RMSNorm),  # BUG: not marked
            policy=policy,
            target_key=LlamaModel,
        )
        return policy
