"""Flow-matching training of an image transformer: seeding, data and the training step."""
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


def build_mesh(dp_replicate: int, dp_shard: int) -> DeviceMesh:
    mesh = init_device_mesh(
        "cuda", (dp_replicate, dp_shard), mesh_dim_names=("dp_replicate", "dp_shard")
    )
    mesh["dp_replicate", "dp_shard"]._flatten(mesh_dim_name="dp")
    return mesh


def set_determinism(mesh: DeviceMesh, seed: int, deterministic: bool = False) -> None:
    """Seed the generators used by the training step (noise, timesteps, prompt dropout)."""
    if deterministic:
        torch.use_deterministic_algorithms(True)
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    seed = seed + mesh["dp"].get_local_rank()
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def parallelize(model, mesh: DeviceMesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fsdp_mesh = mesh["dp_replicate", "dp_shard"]
    for block in (*model.double_blocks, *model.single_blocks):
        fully_shard(block, mesh=fsdp_mesh, mp_policy=policy)
    fully_shard(model, mesh=fsdp_mesh, mp_policy=policy)
    return model


def build_dataloader(dataset, mesh: DeviceMesh, batch_size: int) -> DataLoader:
    dp = mesh["dp"]
    sampler = DistributedSampler(dataset, num_replicas=dp.size(), rank=dp.get_local_rank(), seed=0)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)


class FluxTrainer:
    def __init__(self, model, dataset, cfg):
        self.mesh = build_mesh(cfg.dp_replicate, cfg.dp_shard)
        torch.manual_seed(cfg.seed)
        self.model = parallelize(model, self.mesh)
        self.model.init_weights()
        set_determinism(self.mesh, cfg.seed, cfg.deterministic)
        self.loader = build_dataloader(dataset, self.mesh, cfg.local_batch_size)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.prompt_dropout = cfg.prompt_dropout

    def train_step(self, batch):
        latents = batch["latents"].cuda(non_blocking=True)
        text, pooled = batch["t5"].cuda(), batch["clip"].cuda()
        keep = torch.rand(latents.size(0), device=latents.device) >= self.prompt_dropout
        text = text * keep.view(-1, 1, 1)
        pooled = pooled * keep.view(-1, 1)

        noise = torch.randn_like(latents)
        t = torch.sigmoid(torch.randn(latents.size(0), device=latents.device))
        sigma = t.view(-1, 1, 1)
        noisy = (1 - sigma) * latents + sigma * noise

        prediction = self.model(img=noisy, txt=text, y=pooled, timesteps=t)
        loss = F.mse_loss(prediction.float(), noise - latents)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def train(self, epochs):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            for batch in self.loader:
                self.train_step(batch)
