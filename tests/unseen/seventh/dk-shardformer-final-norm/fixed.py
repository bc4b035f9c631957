"""Shardformer policy of a LLaMA model.

With sp_mode split_gather the hidden states stay split along the sequence over the
tensor-parallel ranks until after model.norm.
"""
from colossalai.shardformer.layer import FusedRMSNorm, Linear1D_Col, Linear1D_Row, RMSNorm
from colossalai.shardformer.policies.base_policy import Policy, SubModuleReplacementDescription
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaModel


class LlamaPolicy(Policy):
    def module_policy(self):
        policy = {}
        norm_cls = FusedRMSNorm if self.shard_config.enable_fused_normalization else RMSNorm
        sp_mode = self.shard_config.sequence_parallelism_mode
        sp_partial_derived = sp_mode == "split_gather"
        col, row = dict(seq_parallel_mode=sp_mode), dict(seq_parallel_mode=sp_mode)
        layer = [
            SubModuleReplacementDescription(suffix=s, target_module=Linear1D_Col, kwargs=col)
            for s in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
        ] + [
            SubModuleReplacementDescription(suffix=s, target_module=Linear1D_Row, kwargs=row)
            for s in ("self_attn.o_proj", "mlp.down_proj")
        ] + [
            SubModuleReplacementDescription(
                suffix=s, target_module=norm_cls, kwargs={"sp_partial_derived": sp_partial_derived}
            )
            for s in ("input_layernorm", "post_attention_layernorm")
        ]
        self.append_or_create_submodule_replacement(layer, policy, target_key=LlamaDecoderLayer)
        self.append_or_create_submodule_replacement(
            description=SubModuleReplacementDescription(
                suffix="norm",
                target_module=norm_cls,
                kwargs={"sp_partial_derived": sp_partial_derived},
            ),
            policy=policy,
            target_key=LlamaModel,
        )
        return policy
