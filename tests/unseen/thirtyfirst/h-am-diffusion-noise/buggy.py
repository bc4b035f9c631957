"""Flow matching pretraining of a video DiT with context parallelism over the latent tokens."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        size, rank = dist.get_world_size(ctx.group), dist.get_rank(ctx.group)
        return grad.chunk(size, dim=ctx.dim)[rank].contiguous(), None, None


class Block(nn.Module):
    def __init__(self, dim, heads, cp_group):
        super().__init__()
        self.heads, self.cp_group = heads, cp_group
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.time = nn.Linear(dim, dim)

    def forward(self, x, cond):
        b, s, d = x.shape
        h = self.norm1(x) + self.time(cond).unsqueeze(1)
        q, k, v = self.qkv(h).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k = GatherSequence.apply(k, 2, self.cp_group)
        v = GatherSequence.apply(v, 2, self.cp_group)
        out = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(out.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class VideoDiT(nn.Module):
    def __init__(self, channels, num_tokens, dim, heads, depth, cp_group):
        super().__init__()
        self.patch = nn.Linear(channels, dim)
        self.pos = nn.Embedding(num_tokens, dim)
        self.time = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, cp_group) for _ in range(depth))
        self.out = nn.Linear(dim, channels)

    def forward(self, tokens, positions, timesteps):
        cond = self.time(timesteps.unsqueeze(-1))
        x = self.patch(tokens) + self.pos(positions)
        for block in self.blocks:
            x = block(x, cond)
        return self.out(x)


def flow_matching_step(model, latents, cp_group):
    """latents: (batch, tokens, channels), the whole clip on every context parallel rank."""
    noise = torch.randn_like(latents)
    timesteps = torch.rand(latents.size(0), device=latents.device)
    mix = timesteps.view(-1, 1, 1)
    noisy = (1.0 - mix) * latents + mix * noise
    target = noise - latents
    positions = torch.arange(latents.size(1), device=latents.device)

    size, rank = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    local = lambda t, dim: t.chunk(size, dim=dim)[rank].contiguous()
    prediction = model(local(noisy, 1), local(positions, 0), timesteps)
    return F.mse_loss(prediction, local(target, 1))


def average_gradients(model):
    # equally long shards: the mean over all ranks is the mean over the global batch
    world = dist.get_world_size()
    for param in model.parameters():
        param.grad.div_(world)
        dist.all_reduce(param.grad)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cp-size", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(
        device_type, (dist.get_world_size() // args.cp_size, args.cp_size), mesh_dim_names=("dp", "cp")
    )
    dp_rank, cp_group = mesh.get_local_rank("dp"), mesh.get_group("cp")

    torch.manual_seed(args.seed)
    model = VideoDiT(channels=16, num_tokens=128, dim=64, heads=4, depth=2, cp_group=cp_group).to(device_type)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    data = torch.Generator().manual_seed(args.seed + dp_rank)
    # noise, timesteps: from here on every rank has its own random stream
    torch.manual_seed(args.seed + 1 + dist.get_rank())  # BUG
    for step in range(args.steps):
        latents = torch.randn(4, 128, 16, generator=data).to(device_type)
        loss = flow_matching_step(model, latents, cp_group)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(model)
        optimizer.step()
        reported = loss.detach().clone()
        dist.all_reduce(reported)
        if dist.get_rank() == 0:
            print(f"step {step} loss {reported.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
