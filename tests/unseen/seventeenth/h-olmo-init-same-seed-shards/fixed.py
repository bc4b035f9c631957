# Source: allenai/OLMo-core commit a04e93f9f (PR #307), src/olmo_core/nn/transformer/model.py
# The weights are initialised after sharding, each rank filling its local shard from a generator
# with the same seed. All shards of a parameter get equal values: the full matrix is a block
# repeated once per rank.
# Repair: add the rank to the seed.
from typing import Optional

import torch
import torch.nn as nn
from torch.distributed import DeviceMesh
from torch.distributed.fsdp import fully_shard

from olmo_core.distributed.utils import get_local_tensor, get_rank
from olmo_core.utils import get_default_device


class Transformer(nn.Module):
    def __init__(self, embeddings: nn.Embedding, blocks: nn.ModuleDict, lm_head: nn.Linear, init_seed: int = 0):
        super().__init__()
        self.embeddings, self.blocks, self.lm_head = embeddings, blocks, lm_head
        self.init_seed = init_seed
        self.init_std = 0.02

    def apply_fsdp(self, dp_mesh: DeviceMesh):
        for block in self.blocks.values():
            fully_shard(block, mesh=dp_mesh)
        fully_shard(self, mesh=dp_mesh)

    def _init_weight(self, w: nn.Parameter, generator: torch.Generator):
        std = self.init_std
        nn.init.trunc_normal_(get_local_tensor(w), mean=0.0, std=std, a=-3 * std, b=3 * std, generator=generator)

    @torch.no_grad()
    def init_weights(self, *, device: Optional[torch.device] = None) -> torch.Generator:
        """Initialize the model weights, sharded already."""
        device = device or get_default_device()
        self.to_empty(device=device)
        for module in self.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

        generator = torch.Generator(device).manual_seed(self.init_seed + get_rank())
        self._init_weight(self.embeddings.weight, generator)
        for block in self.blocks.values():
            for m in block.modules():
                if isinstance(m, nn.Linear):
                    self._init_weight(m.weight, generator)
        self._init_weight(self.lm_head.weight, generator)
        return generator


def parallelize_model(model: Transformer, dp_mesh: DeviceMesh, device: torch.device) -> Transformer:
    model.apply_fsdp(dp_mesh)
    model.init_weights(device=device)
    return model
