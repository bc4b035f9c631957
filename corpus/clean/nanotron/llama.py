"""A decoder in nanotron's style: config dataclass, parallel linear modules, pipeline blocks, sharded loss."""

from dataclasses import dataclass
from typing import Dict, Optional

import torch
from nanotron import distributed as dist
from nanotron.config import ParallelismArgs
from nanotron.nn.layer_norm import TritonRMSNorm
from nanotron.parallel import ParallelContext
from nanotron.parallel.pipeline_parallel.block import PipelineBlock, TensorPointer
from nanotron.parallel.pipeline_parallel.p2p import P2P
from nanotron.parallel.tensor_parallel.functional import sharded_cross_entropy
from nanotron.parallel.tensor_parallel.nn import (
    TensorParallelColumnLinear,
    TensorParallelEmbedding,
    TensorParallelLinearMode,
    TensorParallelRowLinear,
)
from torch import nn
from torch.nn import functional as F


@dataclass
class DecoderConfig:
    hidden_size: int = 2048
    intermediate_size: int = 8192
    num_hidden_layers: int = 16
    vocab_size: int = 32000
    rms_norm_eps: float = 1e-5


class MLP(nn.Module):
    def __init__(self, config: DecoderConfig, parallel_config: Optional[ParallelismArgs], tp_pg: dist.ProcessGroup):
        super().__init__()
        tp_mode = parallel_config.tp_mode if parallel_config is not None else TensorParallelLinearMode.ALL_REDUCE
        overlap = parallel_config.tp_linear_async_communication if parallel_config is not None else False
        self.gate_up_proj = TensorParallelColumnLinear(
            config.hidden_size, 2 * config.intermediate_size, pg=tp_pg, mode=tp_mode, bias=False,
            async_communication=overlap, contiguous_chunks=(config.intermediate_size, config.intermediate_size),
        )
        self.down_proj = TensorParallelRowLinear(
            config.intermediate_size, config.hidden_size, pg=tp_pg, mode=tp_mode, bias=False,
            async_communication=overlap and tp_mode is TensorParallelLinearMode.REDUCE_SCATTER,
        )

    def forward(self, hidden_states):
        gate, up = torch.split(self.gate_up_proj(hidden_states), self.gate_up_proj.out_features // 2, dim=-1)
        return {"hidden_states": self.down_proj(F.silu(gate) * up)}


class DecoderLayer(nn.Module):
    def __init__(self, config: DecoderConfig, parallel_config: Optional[ParallelismArgs], tp_pg: dist.ProcessGroup):
        super().__init__()
        self.post_attention_layernorm = TritonRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = MLP(config=config, parallel_config=parallel_config, tp_pg=tp_pg)

    def forward(self, hidden_states: torch.Tensor, sequence_mask: torch.Tensor) -> Dict[str, torch.Tensor]:
        residual = hidden_states
        hidden_states = self.post_attention_layernorm(hidden_states)
        hidden_states = self.mlp(hidden_states=hidden_states)["hidden_states"]
        return {"hidden_states": hidden_states + residual, "sequence_mask": sequence_mask}


class Embedding(nn.Module):
    def __init__(self, tp_pg: dist.ProcessGroup, config: DecoderConfig, parallel_config: Optional[ParallelismArgs]):
        super().__init__()
        self.token_embedding = TensorParallelEmbedding(
            num_embeddings=config.vocab_size, embedding_dim=config.hidden_size, pg=tp_pg,
            mode=parallel_config.tp_mode if parallel_config is not None else TensorParallelLinearMode.ALL_REDUCE,
        )

    def forward(self, input_ids: torch.Tensor, input_mask: torch.Tensor):
        return {"input_embeds": self.token_embedding(input_ids.transpose(0, 1))}


@torch.jit.script
def masked_mean(loss, label_mask, dtype):
    # type: (Tensor, Tensor, torch.dtype) -> Tensor
    return (loss * label_mask).sum(dtype=dtype) / label_mask.sum()


class Loss(nn.Module):
    def __init__(self, tp_pg: dist.ProcessGroup):
        super().__init__()
        self.tp_pg = tp_pg

    def forward(self, sharded_logits, label_ids, label_mask) -> Dict[str, torch.Tensor]:
        loss = sharded_cross_entropy(
            sharded_logits, label_ids.transpose(0, 1).contiguous(), group=self.tp_pg, dtype=torch.float
        ).transpose(0, 1)
        return {"loss": masked_mean(loss, label_mask, dtype=torch.float)}


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig, parallel_context: ParallelContext, parallel_config: Optional[ParallelismArgs]):
        super().__init__()
        self.p2p = P2P(parallel_context.pp_pg, device=torch.device("cuda"))
        tp_mode = parallel_config.tp_mode if parallel_config is not None else TensorParallelLinearMode.ALL_REDUCE
        shared = {"config": config, "parallel_config": parallel_config, "tp_pg": parallel_context.tp_pg}
        self.embedding = PipelineBlock(
            p2p=self.p2p, module_builder=Embedding, module_kwargs=shared,
            module_input_keys={"input_ids", "input_mask"}, module_output_keys={"input_embeds"},
        )
        self.decoder = nn.ModuleList(
            [
                PipelineBlock(
                    p2p=self.p2p, module_builder=DecoderLayer, module_kwargs=shared,
                    module_input_keys={"hidden_states", "sequence_mask"},
                    module_output_keys={"hidden_states", "sequence_mask"},
                )
                for _ in range(config.num_hidden_layers)
            ]
        )
        self.lm_head = PipelineBlock(
            p2p=self.p2p, module_builder=TensorParallelColumnLinear,
            module_kwargs={
                "in_features": config.hidden_size, "out_features": config.vocab_size,
                "pg": parallel_context.tp_pg, "bias": False, "mode": tp_mode,
            },
            module_input_keys={"x"}, module_output_keys={"logits"},
        )
        self.loss = PipelineBlock(
            p2p=self.p2p, module_builder=Loss, module_kwargs={"tp_pg": parallel_context.tp_pg},
            module_input_keys={"sharded_logits", "label_ids", "label_mask"}, module_output_keys={"loss"},
        )

    def forward(self, input_ids, input_mask, label_ids, label_mask):
        states = {
            "hidden_states": self.embedding(input_ids=input_ids, input_mask=input_mask)["input_embeds"],
            "sequence_mask": input_mask,
        }
        for block in self.decoder:
            states = block(**states)
        logits = self.lm_head(x=states["hidden_states"])["logits"]
        loss = self.loss(sharded_logits=logits, label_ids=label_ids, label_mask=label_mask)["loss"]
        return {"loss": loss if not isinstance(loss, TensorPointer) else loss}
