# thread: https://github.com/mlcommons/training/pull/844
"""Training of a rectified-flow text-to-image transformer on a multi-dimensional device mesh."""
import os
from dataclasses import dataclass
from typing import Optional, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


@dataclass
class JobConfig:
    seed: Optional[int] = 10
    deterministic: bool = False
    dp_replicate: int = 1
    dp_shard: int = 8
    lr: float = 2e-4
    steps: int = 30000
    max_norm: float = 1.0
    prompt_dropout_prob: float = 0.1


def build_mesh(cfg: JobConfig) -> DeviceMesh:
    return init_device_mesh(
        "cuda", (cfg.dp_replicate, cfg.dp_shard), mesh_dim_names=("dp_replicate", "dp_shard")
    )


def set_determinism(
    world_mesh: DeviceMesh,
    device: torch.device,
    seed: Optional[int],
    deterministic: bool,
    distinct_seed_mesh_dims: Sequence[str],
) -> None:
    """Seeds the default generators; ranks differ along ``distinct_seed_mesh_dims`` only."""
    if deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if seed is None:
        seed_tensor = torch.get_rng_state()[:8].to(device)
        dist.broadcast(seed_tensor, src=0)
        seed = seed_tensor.to("cpu").view(torch.uint64).item()
    offset, stride = 0, 1
    for name in distinct_seed_mesh_dims:
        mesh = world_mesh[name]
        offset += mesh.get_local_rank() * stride
        stride *= mesh.size()
    seed = (seed + offset) % 2**64
    torch.manual_seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed % 2**32)


def apply_fsdp(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in list(model.double_blocks) + list(model.single_blocks):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


class FluxTrainer:
    def __init__(self, cfg: JobConfig, model: nn.Module, dataloader):
        self.cfg = cfg
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl")
        self.world_mesh = build_mesh(cfg)
        self.model = apply_fsdp(model.to(self.device), self.world_mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.dataloader = dataloader
        # noise, timesteps and prompt dropout are drawn from the default generators from here on
        set_determinism(
            self.world_mesh,
            self.device,
            cfg.seed,
            cfg.deterministic,
            distinct_seed_mesh_dims=("dp_replicate",),  # BUG
        )

    def train_step(self, batch):
        latents = batch["latents"].to(self.device)
        clip, t5 = batch["clip_encodings"].to(self.device), batch["t5_encodings"].to(self.device)
        drop = torch.rand(latents.size(0), device=self.device) < self.cfg.prompt_dropout_prob
        t5 = t5.masked_fill(drop.view(-1, 1, 1), 0.0)
        clip = clip.masked_fill(drop.view(-1, 1), 0.0)

        noise = torch.randn_like(latents)
        timesteps = torch.rand(latents.size(0), device=self.device)
        sigmas = timesteps.view(-1, 1, 1, 1)
        noisy = (1 - sigmas) * latents + sigmas * noise
        pred = self.model(noisy, t5, clip, timesteps)
        loss = F.mse_loss(pred.float(), (noise - latents).float())
        self.optimizer.zero_grad()
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_norm)
        self.optimizer.step()
        return loss.detach(), grad_norm

    def train(self):
        for step, batch in zip(range(self.cfg.steps), self.dataloader):
            loss, _ = self.train_step(batch)
            if step % 10 == 0:
                dist.all_reduce(loss, op=dist.ReduceOp.AVG)
                if dist.get_rank() == 0:
                    print(f"step {step} loss {loss.item():.4f}")
