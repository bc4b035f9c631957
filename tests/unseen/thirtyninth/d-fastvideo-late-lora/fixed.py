"""Inject LoRA adapters into a model that FSDP2 has already sharded."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate


@torch.no_grad()
def average_replicas(param):
    grad, mesh = param.grad.to_local(), param.device_mesh
    for dim in range(mesh.ndim):
        dist.all_reduce(grad, group=mesh.get_group(dim))
        grad.div_(mesh.size(dim))


def replicated_parameter(data, mesh):
    for dim in range(mesh.ndim):
        group = mesh.get_group(dim)
        dist.broadcast(data, src=dist.get_process_group_ranks(group)[0], group=group)
    param = nn.Parameter(DTensor.from_local(data, mesh, [Replicate()] * mesh.ndim, run_check=False))
    param.register_post_accumulate_grad_hook(average_replicas)
    return param


class LoRALinear(nn.Module):
    def __init__(self, base, mesh, rank, alpha):
        super().__init__()
        self.base = base
        device = torch.device("cuda", torch.cuda.current_device())
        a = torch.empty(rank, base.in_features, device=device)
        nn.init.kaiming_uniform_(a, a=5**0.5)
        self.lora_A = replicated_parameter(a, mesh)
        self.lora_B = replicated_parameter(torch.zeros(base.out_features, rank, device=device), mesh)
        self.scale = alpha / rank

    def forward(self, x):
        a, b = self.lora_A.to_local(), self.lora_B.to_local()
        return self.base(x) + (x @ a.t() @ b.t()) * self.scale


def add_lora(transformer, mesh, targets, rank=16, alpha=16):
    for block in transformer.blocks:
        for name in targets:
            parent_name, _, child = name.rpartition(".")
            parent = block.get_submodule(parent_name)
            setattr(parent, child, LoRALinear(getattr(parent, child), mesh, rank, alpha))


def build(transformer, mesh, targets):
    transformer.requires_grad_(False)
    for block in transformer.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(transformer, mesh=mesh)
    add_lora(transformer, mesh, targets)
    params = [p for p in transformer.parameters() if p.requires_grad]
    return transformer, torch.optim.AdamW(params, lr=1e-4)


def train_step(transformer, optimizer, batches, loss_fn):
    for batch in batches:
        (loss_fn(transformer(batch["latents"], batch["t"]), batch) / len(batches)).backward()
    optimizer.step()
    optimizer.zero_grad()
