# hpcaitech/ColossalAI, pull request 4915 - https://github.com/hpcaitech/ColossalAI/pull/4915 (read: title; policy files read)
# Sequence-parallel norms only see a part of the sequence; the policy must tell the norm layer so
# (sp_partial_derived), otherwise the plugin does not all-reduce their gradients.
"""Shardformer policy of a BERT layer with split-gather sequence parallelism."""
import colossalai.shardformer.layer as col_nn
from colossalai.shardformer.policies.base_policy import (
    ModulePolicyDescription,
    Policy,
    SubModuleReplacementDescription,
)
from transformers.models.bert.modeling_bert import BertLayer


class BertPolicy(Policy):
    def module_policy(self):
        sp_mode = None
        if self.shard_config.enable_sequence_parallelism:
            sp_mode = self.shard_config.sequence_parallelism_mode
        sp_partial_derived = sp_mode == "split_gather"
        linear = {"seq_parallel_mode": sp_mode}
        norm_cls = col_nn.FusedLayerNorm if self.shard_config.enable_fused_normalization else col_nn.LayerNorm

        def replace(suffix, target, kwargs):
            return SubModuleReplacementDescription(suffix=suffix, target_module=target, kwargs=kwargs)

        return {
            BertLayer: ModulePolicyDescription(
                sub_module_replacement=[
                    replace("attention.self.query", col_nn.Linear1D_Col, linear),
                    replace("attention.self.key", col_nn.Linear1D_Col, linear),
                    replace("attention.self.value", col_nn.Linear1D_Col, linear),
                    replace("attention.output.dense", col_nn.Linear1D_Row, linear),
                    replace("intermediate.dense", col_nn.Linear1D_Col, linear),
                    replace("output.dense", col_nn.Linear1D_Row, linear),
                    replace("attention.output.LayerNorm", norm_cls, {}),  # BUG: gradient is partial over the sequence
                    replace("output.LayerNorm", norm_cls, {}),
                ]
            )
        }
