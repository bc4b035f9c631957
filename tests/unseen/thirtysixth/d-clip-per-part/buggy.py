# thread: https://github.com/nvidia-cosmos/cosmos-rl/pull/120
"""Training step of a policy trainer whose model is built from several parts."""
from dataclasses import dataclass
from typing import Iterable, List, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor


@dataclass
class TrainConfig:
    optm_lr: float = 1e-6
    optm_grad_norm_clip: float = 1.0
    optm_weight_decay: float = 0.01
    mini_batch: int = 4
    train_batch_per_replica: int = 32


@torch.no_grad()
def gradient_norm_clipping(
    parameters: Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    foreach: Optional[bool] = None,
    pp_mesh=None,
) -> torch.Tensor:
    """Clip by the norm over all shards and, with a pipeline mesh, over all stages."""
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type, foreach=foreach)
    if isinstance(total_norm, DTensor):
        total_norm = total_norm.full_tensor()
    if pp_mesh is not None:
        total_norm = total_norm**norm_type
        dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=pp_mesh.get_group())
        total_norm = total_norm ** (1.0 / norm_type)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)
    return total_norm


class VLMPolicy(nn.Module):
    def __init__(self, visual: nn.Module, language_model: nn.Module):
        super().__init__()
        self.visual = visual
        self.model = language_model

    def separate_model_parts(self) -> List[nn.Module]:
        """Parts that get optimizers (and learning rates) of their own."""
        return [self.model, self.visual]

    def forward(self, input_ids, pixel_values=None, position_ids=None):
        embeds = self.model.embed_tokens(input_ids)
        if pixel_values is not None:
            image = self.visual(pixel_values)
            mask = (input_ids == self.model.image_token_id).unsqueeze(-1)
            embeds = embeds.masked_scatter(mask, image.to(embeds.dtype))
        return self.model(inputs_embeds=embeds, position_ids=position_ids)


class OptimizersContainer:
    def __init__(self, model_parts, cfg: TrainConfig, visual_lr_scale=0.1):
        self.optimizers = []
        for i, part in enumerate(model_parts):
            lr = cfg.optm_lr * (visual_lr_scale if i else 1.0)
            params = [p for p in part.parameters() if p.requires_grad]
            self.optimizers.append(torch.optim.AdamW(params, lr=lr, weight_decay=cfg.optm_weight_decay))

    def step(self):
        for opt in self.optimizers:
            opt.step()

    def zero_grad(self):
        for opt in self.optimizers:
            opt.zero_grad()


class GRPOTrainer:
    def __init__(self, model: VLMPolicy, cfg: TrainConfig, parallel_dims, loss_fn):
        self.model, self.cfg, self.loss_fn = model, cfg, loss_fn
        self.parallel_dims = parallel_dims
        self.model_parts = model.separate_model_parts()
        self.optimizers = OptimizersContainer(self.model_parts, cfg)

    def all_reduce_grads_and_step(self):
        pp_mesh = self.parallel_dims.mesh["pp"] if self.parallel_dims.pp_enabled else None
        grad_norm = torch.zeros((), device="cuda")
        for model_part in self.model_parts:
            norm = gradient_norm_clipping(
                model_part.parameters(), self.cfg.optm_grad_norm_clip, pp_mesh=pp_mesh  # BUG
            )
            grad_norm = torch.maximum(grad_norm, norm)
        self.optimizers.step()
        self.optimizers.zero_grad()
        return grad_norm

    def train(self, rollouts):
        self.model.train()
        minis = [rollouts[i : i + self.cfg.mini_batch] for i in range(0, len(rollouts), self.cfg.mini_batch)]
        total = torch.zeros((), device="cuda")
        for mini in minis:
            logits = self.model(mini.input_ids, mini.pixel_values, mini.position_ids)
            loss = self.loss_fn(logits, mini) / len(minis)
            loss.backward()
            total += loss.detach()
        grad_norm = self.all_reduce_grads_and_step()
        dist.all_reduce(total, op=dist.ReduceOp.AVG, group=self.parallel_dims.mesh["dp_cp"].get_group())
        return {"train/loss": total.item(), "train/grad_norm": grad_norm.item()}
