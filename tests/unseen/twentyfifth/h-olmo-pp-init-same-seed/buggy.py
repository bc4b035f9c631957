# OLMo-core 38704d167 (PR #679): with an interleaved pipeline schedule all model parts of a rank are initialized
# from the seed of that pipeline rank, so different layers start with identical weights.
import torch
import torch.nn as nn
from torch.distributed import DeviceMesh

from olmo_core.distributed.parallel import get_pp_mesh


class Transformer(nn.Module):
    def __init__(self, blocks: nn.ModuleDict, init_method, d_model, n_layers, init_std=0.02, init_seed=0):
        super().__init__()
        self.blocks = blocks
        self.init_method = init_method
        self.d_model, self.n_layers = d_model, n_layers
        self.init_std, self.init_seed = init_std, init_seed
        self._pp_enabled = False

    @property
    def pp_enabled(self) -> bool:
        return self._pp_enabled

    @torch.no_grad()
    def init_weights(self, *, device: torch.device, world_mesh: DeviceMesh) -> torch.Generator:
        self.to_empty(device=device)

        seed = self.init_seed
        if self.pp_enabled:
            seed += get_pp_mesh(world_mesh).get_local_rank()  # BUG
        generator = torch.Generator(device).manual_seed(seed)

        for block in self.blocks.values():
            self.init_method.init_attention(
                block.attention,
                d_model=self.d_model,
                block_idx=block.block_idx,
                num_blocks=self.n_layers,
                std=self.init_std,
                generator=generator,
            )
            self.init_method.init_feed_forward(
                block.feed_forward,
                d_model=self.d_model,
                block_idx=block.block_idx,
                num_blocks=self.n_layers,
                std=self.init_std,
                generator=generator,
            )
        return generator


def parallelize_model(model_parts: list[Transformer], world_mesh: DeviceMesh, device: torch.device):
    """model_parts: the chunks of the pipeline that live on this rank, ready for Interleaved1F1B."""
    for m in model_parts:
        m._pp_enabled = True
        m.init_weights(device=device, world_mesh=world_mesh)
    return model_parts
