"""Expert parallel MoE on a (dp, ep) mesh with the expert computation in a local_map region."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map

NUM_EXPERTS, TOP_K = 4, 2


def expert_compute(x, probs, w1, w2, expert_offset):
    """x: local tokens, w1/w2: local experts; returns this rank's share of the output."""
    scores, selected = probs.topk(TOP_K, dim=-1)
    out = torch.zeros_like(x)
    for local_id in range(w1.size(0)):
        rows, slots = (selected == expert_offset + local_id).nonzero(as_tuple=True)
        hidden = F.silu(x[rows] @ w1[local_id].t()) @ w2[local_id].t()
        out = out.index_add(0, rows, hidden * scores[rows, slots].unsqueeze(-1))
    return out


def build_expert_region(mesh):
    token_placements = (Shard(0), Replicate())
    weight_placements = (Replicate(), Shard(0))
    # every ep rank contributes the gradient of its own experts to the tokens,
    # every dp rank the gradient of its own tokens to the experts
    token_grad_placements = (Shard(0), Partial())
    weight_grad_placements = (Partial(), Shard(0))
    return local_map(
        expert_compute,
        out_placements=[Shard(0), Partial()],
        in_placements=(token_placements, token_placements, weight_placements, weight_placements, None),
        in_grad_placements=(
            token_grad_placements,
            token_grad_placements,
            weight_grad_placements,
            weight_grad_placements,
            None,
        ),
        device_mesh=mesh,
        redistribute_inputs=True,
    )


class MoE(nn.Module):
    """Expert weights are kept sharded over dp (dim 1) and ep (dim 0)."""

    def __init__(self, dim, hidden, mesh):
        super().__init__()
        self.mesh = mesh
        self.expert_region = build_expert_region(mesh)
        self.expert_offset = mesh.get_local_rank("ep") * (NUM_EXPERTS // mesh["ep"].size())
        stored, replicated = [Shard(1), Shard(0)], [Replicate(), Replicate()]
        device = mesh.device_type
        w1 = torch.randn(NUM_EXPERTS, hidden, dim, device=device) * 0.1
        w2 = torch.randn(NUM_EXPERTS, dim, hidden, device=device) * 0.1
        gate = torch.randn(NUM_EXPERTS, dim, device=device) * 0.1
        self.w1 = nn.Parameter(distribute_tensor(w1, mesh, stored))
        self.w2 = nn.Parameter(distribute_tensor(w2, mesh, stored))
        self.gate = nn.Parameter(distribute_tensor(gate, mesh, replicated))

    def forward(self, x):
        probs = F.linear(x, self.gate).softmax(dim=-1)
        out = self.expert_region(x, probs, self.w1, self.w2, self.expert_offset)
        return out.redistribute(placements=[Shard(0), Replicate()])


def reduce_replicated_grads(model):
    for param in model.parameters():
        if param.grad.placements != param.placements:
            param.grad = param.grad.redistribute(placements=param.placements)


def main(dim=32, hidden=64, tokens_per_rank=64, steps=10, ep_size=2):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dp_size = dist.get_world_size() // ep_size
    mesh = init_device_mesh(device_type, (dp_size, ep_size), mesh_dim_names=("dp", "ep"))

    torch.manual_seed(0)
    model = MoE(dim, hidden, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # the ranks of one ep group work on the same tokens
    generator = torch.Generator().manual_seed(100 + mesh.get_local_rank("dp"))
    for step in range(steps):
        x = torch.randn(tokens_per_rank, dim, generator=generator).to(device_type)
        target = torch.randn(tokens_per_rank, dim, generator=generator).to(device_type)
        x = DTensor.from_local(x, mesh, [Shard(0), Replicate()], run_check=False)
        target = DTensor.from_local(target, mesh, [Shard(0), Replicate()], run_check=False)
        loss = (model(x) - target).square().sum() / target.numel()
        optimizer.zero_grad()
        loss.backward()
        reduce_replicated_grads(model)
        optimizer.step()
        value = loss.detach().full_tensor().item()
        if dist.get_rank() == 0:
            print(f"step {step} loss {value:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
