"""Full fine-tuning recipe on FSDP2 with gradient accumulation."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

CROSS_ENTROPY_IGNORE_IDX = -100


def scale_grads(model: nn.Module, scaler: torch.Tensor) -> None:
    """Multiply every gradient of the model by ``scaler``."""
    device = None
    for p in model.parameters():
        if p.grad is not None:
            if device is None:
                device = p.device
                scaler = scaler.to(device)
            p.grad *= scaler.to(p.grad.dtype)


class FullFinetuneRecipeDistributed:
    def __init__(self, cfg):
        self._device = torch.device("cuda", torch.cuda.current_device())
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()
        self._gradient_accumulation_steps = cfg.gradient_accumulation_steps
        self._clip_grad_norm = cfg.clip_grad_norm
        self.mesh = init_device_mesh("cuda", (self.world_size,), mesh_dim_names=("dp",))
        self.global_step = 0

    def _setup_model(self, model):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in reversed(model.layers):
            fully_shard(layer, mesh=self.mesh, mp_policy=policy)
        fully_shard(model, mesh=self.mesh, mp_policy=policy)
        return model

    def setup(self, model, dataloader):
        self._model = self._setup_model(model)
        self._dataloader = dataloader
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=2e-5, fused=True)

    def _loss_step(self, batch):
        labels = batch.pop("labels")
        logits = self._model(**batch)
        labels = torch.hstack(
            (labels[..., 1:], torch.full_like(labels[:, :1], CROSS_ENTROPY_IGNORE_IDX))
        )
        return F.cross_entropy(
            logits.float().flatten(0, 1),
            labels.flatten(),
            ignore_index=CROSS_ENTROPY_IGNORE_IDX,
            reduction="sum",
        )

    def train_epoch(self, epoch):
        self._dataloader.sampler.set_epoch(epoch)
        running_loss = torch.zeros((), device=self._device)
        num_tokens = torch.zeros((), device=self._device)
        self._optimizer.zero_grad()
        for idx, batch in enumerate(self._dataloader):
            batch = {k: v.to(self._device) for k, v in batch.items()}
            labels = batch["labels"]
            num_tokens += (labels[..., 1:] != CROSS_ENTROPY_IGNORE_IDX).sum()
            loss = self._loss_step(batch)
            running_loss += loss.detach()
            loss.backward()

            if (idx + 1) % self._gradient_accumulation_steps != 0:
                continue
            dist.all_reduce(num_tokens)
            dist.all_reduce(running_loss)
            scale_grads(self._model, self.world_size / num_tokens)
            if self._clip_grad_norm is not None:
                grad_norm = torch.nn.utils.clip_grad_norm_(
                    self._model.parameters(), max_norm=float(self._clip_grad_norm)
                )
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            self.global_step += 1
            if self.rank == 0:
                print(f"step {self.global_step} loss {(running_loss / num_tokens).item():.4f}")
            running_loss.zero_()
            num_tokens.zero_()
