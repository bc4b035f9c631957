"""LoRA adapters added to a model that fully_shard has already wrapped."""
# thread: hao-ai-lab/FastVideo#1666
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate


class LoRALinear(torch.nn.Module):
    def __init__(self, base, rank, mesh):
        super().__init__()
        self.base = base
        a = torch.randn(rank, base.in_features, device="cuda") / rank
        dist.broadcast(a, src=0)
        b = torch.zeros(base.out_features, rank, device="cuda")
        self.lora_A = torch.nn.Parameter(DTensor.from_local(a, mesh, [Replicate()]))
        self.lora_B = torch.nn.Parameter(DTensor.from_local(b, mesh, [Replicate()]))

    def forward(self, x):
        h = F.linear(x, self.lora_A.to_local())
        return self.base(x) + F.linear(h, self.lora_B.to_local())


def average_over_mesh(p):
    dist.all_reduce(p.grad.to_local(), op=dist.ReduceOp.AVG, group=p.device_mesh.get_group())


def build(transformer, rank, mesh):
    for block in transformer.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(transformer, mesh=mesh)
    transformer.requires_grad_(False)
    adapters = []
    for block in transformer.blocks:
        block.attn.to_q = LoRALinear(block.attn.to_q, rank, mesh)
        adapters += [block.attn.to_q.lora_A, block.attn.to_q.lora_B]  # BUG: no FSDP hook reduces late parameters
    return torch.optim.AdamW(adapters, lr=1e-4)
