"""SFT worker on a (dp, tp) DTensor mesh with its own gradient norm and clipping."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate_proj = nn.Linear(dim, 4 * dim, bias=False)
        self.up_proj = nn.Linear(dim, 4 * dim, bias=False)
        self.down_proj = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Model(nn.Module):
    def __init__(self, vocab, dim, n_layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def parallelize(model: Model, mesh: DeviceMesh) -> Model:
    plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel(), "down_proj": RowwiseParallel()}
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model


def is_sharded_over(tensor: DTensor, dim_name: str) -> bool:
    names = tensor.device_mesh.mesh_dim_names
    return dim_name in names and tensor.placements[names.index(dim_name)].is_shard()


@torch.no_grad()
def get_grad_norm(parameters, mesh: DeviceMesh, norm_type: float = 2.0) -> float:
    """Norm of the full gradient, every element counted exactly once."""
    grads_for_norm = []
    for param in parameters:
        if param.grad is None:
            continue
        if is_sharded_over(param.grad, "tp") or mesh.get_local_rank("tp") == 0:
            grads_for_norm.append(param.grad.to_local())

    total_norm = torch.zeros((), dtype=torch.float32, device=mesh.device_type)
    for grad in grads_for_norm:
        total_norm += torch.linalg.vector_norm(grad, ord=norm_type, dtype=torch.float32).pow(norm_type)
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=mesh.get_group("dp"))
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=mesh.get_group("tp"))
    return total_norm.item() ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm: float, total_norm: float) -> None:
    clip_coeff = max_grad_norm / (total_norm + 1e-6)
    if clip_coeff < 1.0:
        for param in parameters:
            if param.grad is not None:
                param.grad.to_local().mul_(clip_coeff)


class PolicyWorker:
    def __init__(self, model, mesh, lr=1e-3, max_grad_norm=1.0):
        self.model, self.mesh, self.max_grad_norm = model, mesh, max_grad_norm
        # parameters of different meshes do not mix in one foreach call
        sharded = [p for p in model.parameters() if p.device_mesh.ndim == 2]
        dp_only = [p for p in model.parameters() if p.device_mesh.ndim == 1]
        self.optimizer = torch.optim.AdamW([{"params": sharded}, {"params": dp_only}], lr=lr)

    def train(self, batch):
        logits = self.model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        params = list(self.model.parameters())
        grad_norm = get_grad_norm(params, self.mesh)
        clip_grad_by_total_norm_(params, self.max_grad_norm, grad_norm)
        self.optimizer.step()
        loss = loss.detach().clone()
        dist.all_reduce(loss, group=self.mesh.get_group("dp"))
        return loss.item() / self.mesh["dp"].size(), grad_norm


def main(vocab=512, dim=64, n_layers=2, tp_size=2, steps=10):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device_type, (dist.get_world_size() // tp_size, tp_size), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    worker = PolicyWorker(parallelize(Model(vocab, dim, n_layers).to(device_type), mesh), mesh)
    generator = torch.Generator().manual_seed(10 + mesh.get_local_rank("dp"))
    for step in range(steps):
        batch = torch.randint(vocab, (4, 65), generator=generator).to(device_type)
        loss, grad_norm = worker.train(batch)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.4f} grad_norm {grad_norm:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
