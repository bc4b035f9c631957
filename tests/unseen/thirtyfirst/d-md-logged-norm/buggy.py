"""Flow matching fine-tuning of a small DiT with FSDP2."""
import json
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class DiTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.modulation = nn.Linear(dim, 4 * dim)

    def forward(self, x, cond):
        shift1, scale1, shift2, scale2 = self.modulation(F.silu(cond)).unsqueeze(1).chunk(4, dim=-1)
        h = self.norm1(x) * (1 + scale1) + shift1
        b, s, d = h.shape
        q, k, v = self.qkv(h).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, d)
        x = x + self.proj(h)
        return x + self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, in_dim, dim, heads, depth, seq_len):
        super().__init__()
        self.patch = nn.Linear(in_dim, dim)
        self.pos = nn.Parameter(torch.randn(1, seq_len, dim) * 0.02)
        self.time = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(DiTBlock(dim, heads) for _ in range(depth))
        self.final = nn.Linear(dim, in_dim)

    def forward(self, x, t):
        cond = self.time(t.unsqueeze(-1))
        x = self.patch(x) + self.pos
        for block in self.blocks:
            x = block(x, cond)
        return self.final(x)


class MetricLogger:
    def __init__(self, path, enabled):
        self.file = open(path, "a") if enabled else None

    def log(self, step, metrics):
        if self.file is not None:
            self.file.write(json.dumps({"step": step, **metrics}) + "\n")
            self.file.flush()

    def close(self):
        if self.file is not None:
            self.file.close()


@torch.no_grad()
def global_norm(tensors):
    """2-norm over all elements of a list of (sharded) tensors."""
    total = sum(tensor.detach().float().square().sum() for tensor in tensors)
    if isinstance(total, DTensor):
        total = total.to_local()  # BUG
    return total.sqrt().item()


class Trainer:
    def __init__(self, model, mesh, lr, max_grad_norm):
        self.model, self.mesh, self.max_grad_norm = model, mesh, max_grad_norm
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def flow_matching_loss(self, latents):
        noise = torch.randn_like(latents)
        t = torch.rand(latents.size(0), device=latents.device)
        mix = t.view(-1, 1, 1)
        noisy = (1 - mix) * latents + mix * noise
        return F.mse_loss(self.model(noisy, t), noise - latents)

    def step(self, latents):
        loss = self.flow_matching_loss(latents)
        self.optimizer.zero_grad()
        loss.backward()
        parameters = list(self.model.parameters())
        grad_norm = global_norm([p.grad for p in parameters])
        torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        self.optimizer.step()

        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss, group=self.mesh.get_group())
        return {
            "train/loss": mean_loss.item() / self.mesh.size(),
            "train/grad_norm": grad_norm,
            "train/param_norm": global_norm(parameters),
        }


def main(seq_len=64, in_dim=16, steps=20, seed=0):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device_type, (dist.get_world_size(),), mesh_dim_names=("dp",))
    torch.manual_seed(seed)
    model = DiT(in_dim, dim=128, heads=4, depth=2, seq_len=seq_len).to(device_type)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)

    # data, noise and timesteps differ between the data parallel ranks
    torch.manual_seed(seed + 1 + dist.get_rank())
    trainer = Trainer(model, mesh, lr=1e-4, max_grad_norm=1.0)
    logger = MetricLogger("metrics.jsonl", enabled=dist.get_rank() == 0)
    for step in range(steps):
        latents = torch.randn(8, seq_len, in_dim, device=device_type)
        logger.log(step, trainer.step(latents))
    logger.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
