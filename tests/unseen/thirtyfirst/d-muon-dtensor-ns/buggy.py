"""Muon for FSDP2 models: hidden matrices get orthogonalized momentum, the rest AdamW."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def zeropower_via_newtonschulz5(matrix: torch.Tensor, steps: int) -> torch.Tensor:
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.bfloat16()
    transposed = x.size(0) > x.size(1)
    if transposed:
        x = x.mT
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    if transposed:
        x = x.mT
    return x.to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=2e-2, momentum=0.95, weight_decay=0.01, ns_steps=5):
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, ns_steps=ns_steps)
        super().__init__(params, defaults)

    @staticmethod
    def _orthogonalize(update: DTensor, ns_steps: int) -> DTensor:
        local = zeropower_via_newtonschulz5(update.to_local(), ns_steps)  # BUG
        return DTensor.from_local(
            local, update.device_mesh, update.placements, run_check=False, shape=update.shape, stride=update.stride()
        )

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(param.grad)
                buf = state["momentum_buffer"]
                buf.mul_(group["momentum"]).add_(param.grad)
                update = param.grad.add(buf, alpha=group["momentum"])
                update = self._orthogonalize(update, group["ns_steps"])
                scale = 0.2 * max(param.size(0), param.size(1)) ** 0.5
                param.mul_(1 - group["lr"] * group["weight_decay"])
                param.add_(update, alpha=-group["lr"] * scale)
        return loss


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 4 * dim, bias=False)
        self.fc2 = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocab, dim, num_layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build_optimizers(model: Model):
    hidden = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in hidden}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [Muon(hidden, lr=2e-3), torch.optim.AdamW(others, lr=1e-3)]


def main(vocab=512, dim=64, num_layers=2, steps=10, seed=0):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device_type, (dist.get_world_size(),), mesh_dim_names=("dp",))

    torch.manual_seed(seed)
    model = Model(vocab, dim, num_layers).to(device_type)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizers = build_optimizers(model)

    generator = torch.Generator().manual_seed(seed + 1 + dist.get_rank())
    for step in range(steps):
        batch = torch.randint(vocab, (8, 65), generator=generator).to(device_type)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        reported = loss.detach().clone()
        dist.all_reduce(reported)
        if dist.get_rank() == 0:
            print(f"step {step} loss {reported.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
