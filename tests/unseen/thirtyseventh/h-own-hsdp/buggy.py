# thread: none (from memory of a small sharded-training library)
"""Hybrid sharding: parameters split within a node, copies of the split across nodes."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class HybridMesh:
    def __init__(self, shard_size):
        replicas = dist.get_world_size() // shard_size
        mesh = init_device_mesh(
            "cuda", (replicas, shard_size), mesh_dim_names=("replicate", "shard")
        )
        self.shard_group = mesh.get_group("shard")
        self.replicate_group = mesh.get_group("replicate")
        self.shard_size, self.replicas = shard_size, replicas
        self.shard_rank = dist.get_rank(self.shard_group)


class GatherWeight(torch.autograd.Function):
    """Flat slice -> whole parameter; the gradient comes back as the mean's slice."""

    @staticmethod
    def forward(ctx, piece, shape, mesh):
        ctx.mesh, ctx.piece_size = mesh, piece.numel()
        flat = piece.new_empty(piece.numel() * mesh.shard_size)
        dist.all_gather_into_tensor(flat, piece.detach(), group=mesh.shard_group)
        return flat[: shape.numel()].view(shape)

    @staticmethod
    def backward(ctx, grad):
        mesh = ctx.mesh
        flat = F.pad(grad.reshape(-1), (0, ctx.piece_size * mesh.shard_size - grad.numel()))
        out = flat.new_empty(ctx.piece_size)
        dist.reduce_scatter_tensor(
            out, flat.contiguous(), op=dist.ReduceOp.AVG, group=mesh.shard_group
        )
        dist.all_reduce(out, op=dist.ReduceOp.AVG)  # BUG
        return out, None, None


class ShardedLinear(nn.Module):
    def __init__(self, linear, mesh):
        super().__init__()
        self.mesh = mesh
        self.shape, self.bias_shape = linear.weight.shape, linear.bias.shape
        self.weight = nn.Parameter(self.cut(linear.weight.detach()))
        self.bias = nn.Parameter(self.cut(linear.bias.detach()))

    def cut(self, tensor):
        size = -(-tensor.numel() // self.mesh.shard_size)
        flat = F.pad(tensor.reshape(-1), (0, size * self.mesh.shard_size - tensor.numel()))
        return flat[self.mesh.shard_rank * size : (self.mesh.shard_rank + 1) * size].clone()

    def forward(self, x):
        weight = GatherWeight.apply(self.weight, self.shape, self.mesh)
        bias = GatherWeight.apply(self.bias, self.bias_shape, self.mesh)
        return F.linear(x, weight, bias)


def shard_model(model, mesh):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, ShardedLinear(child, mesh))
    return model


def clip_(params, limit, mesh):
    total = torch.stack([p.grad.square().sum() for p in params]).sum()
    dist.all_reduce(total, group=mesh.shard_group)
    scale = (limit / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(scale)


def train(build, loader, cfg):
    """build gives a stack of biased linear layers and activations."""
    torch.manual_seed(cfg.seed)
    mesh = HybridMesh(cfg.shard_size)
    model = shard_model(build().cuda(), mesh)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(params, lr=cfg.lr)
    for x, y in loader:
        F.mse_loss(model(x.cuda()), y.cuda()).backward()
        clip_(params, cfg.clip, mesh)
        optimizer.step()
        optimizer.zero_grad()
