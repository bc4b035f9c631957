# NVIDIA/Megatron-LM, pull request 442 - https://github.com/NVIDIA/Megatron-LM/pull/442 (read)
# FP8 scaling factors come from amax values reduced over fp8_group. With the data-parallel group the TP shards
# of one activation or weight gradient get different scales; trainings with TP=8 diverged.
"""Transformer stack with Transformer Engine FP8 under tensor parallelism."""
import torch
import transformer_engine.pytorch as te
from megatron.core import mpu
from transformer_engine.common.recipe import DelayedScaling, Format


class ParallelTransformer(torch.nn.Module):
    def __init__(self, args, num_layers):
        super().__init__()
        self.use_fp8 = args.fp8_e4m3 or args.fp8_hybrid
        self.fp8_recipe, self.fp8_group = None, None
        if self.use_fp8:
            self.fp8_group = mpu.get_data_parallel_group()  # BUG: tensor-parallel ranks are not in it
            self.fp8_recipe = DelayedScaling(
                margin=args.fp8_margin,
                interval=args.fp8_interval,
                fp8_format=Format.E4M3 if args.fp8_e4m3 else Format.HYBRID,
                amax_history_len=args.fp8_amax_history_len,
                amax_compute_algo=args.fp8_amax_compute_algo,
                reduce_amax=True,
            )
        self.layers = torch.nn.ModuleList(
            te.TransformerLayer(
                args.hidden_size,
                args.ffn_hidden_size,
                args.num_attention_heads,
                tp_group=mpu.get_tensor_model_parallel_group(),
                tp_size=mpu.get_tensor_model_parallel_world_size(),
                set_parallel_mode=True,
                sequence_parallel=args.sequence_parallel,
            )
            for _ in range(num_layers)
        )

    def forward(self, hidden_states, attention_mask):
        with te.fp8_autocast(enabled=self.use_fp8, fp8_recipe=self.fp8_recipe, fp8_group=self.fp8_group):
            for layer in self.layers:
                hidden_states = layer(hidden_states, attention_mask)
        return hidden_states
