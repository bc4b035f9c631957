# Reduced from OLMo-core nn/transformer/model.py (allenai/OLMo-core pull requests 307, 319, read).
# Parameters are DTensors placed by fully_shard on a (dp_replicate, dp_shard) mesh; unlike DDP,
# fully_shard does not broadcast parameters.
# What happens: with hybrid sharding each replica group starts from other weights and, with equal
# gradients, keeps the difference.
import torch
import torch.nn as nn
from torch.distributed.tensor import DTensor
from olmo_core.distributed.utils import get_rank


def apply_init(init_fun, x, *args, **kwargs):
    init_fun(x.to_local() if isinstance(x, DTensor) else x, *args, **kwargs)


class Transformer(nn.Module):
    def __init__(self, blocks, embeddings, lm_head, init_seed=0, init_std=0.02):
        super().__init__()
        self.embeddings, self.blocks, self.lm_head = embeddings, blocks, lm_head
        self.init_seed, self.init_std = init_seed, init_std

    @torch.no_grad()
    def init_weights(self, device, pp_mesh=None):
        self.to_empty(device=device)
        seed = self.init_seed + get_rank()  # BUG
        generator = torch.Generator(device).manual_seed(seed)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                apply_init(
                    nn.init.trunc_normal_,
                    module.weight,
                    mean=0.0,
                    std=self.init_std,
                    a=-3 * self.init_std,
                    b=3 * self.init_std,
                    generator=generator,
                )
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.RMSNorm):
                module.reset_parameters()
        return generator
