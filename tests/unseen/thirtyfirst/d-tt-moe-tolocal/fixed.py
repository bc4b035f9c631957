"""Tensor parallel MoE feed-forward (DTensor): every expert is sharded along its hidden dim."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class MoE(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, num_experts: int, top_k: int):
        super().__init__()
        self.num_experts = num_experts
        self.top_k = top_k
        self.gate = nn.Parameter(torch.empty(num_experts, dim))
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))
        self.w3 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))
        for weight in (self.gate, self.w1, self.w2, self.w3):
            nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # x: DTensor (tokens, dim), replicated over the tp mesh
        mesh = x.device_mesh
        scores = F.softmax(F.linear(x, self.gate), dim=-1)

        # below this point everything is local: the tp ranks hold slices of each expert
        x_local = x.to_local(grad_placements=(Partial(),))
        scores_local = scores.to_local(grad_placements=(Partial(),))
        w1, w2, w3 = self.w1.to_local(), self.w2.to_local(), self.w3.to_local()

        top_scores, selected = scores_local.topk(self.top_k, dim=-1)
        out = torch.zeros_like(x_local)
        for expert in range(self.num_experts):
            token_idx, slot_idx = (selected == expert).nonzero(as_tuple=True)
            tokens = x_local[token_idx]
            hidden = F.silu(tokens @ w1[expert].t()) * (tokens @ w3[expert].t())
            routed = (hidden @ w2[expert].t()) * top_scores[token_idx, slot_idx].unsqueeze(-1)
            out = out.index_add(0, token_idx, routed)

        out = DTensor.from_local(out, mesh, (Partial(),), run_check=False)
        return out.redistribute(placements=(Replicate(),))


class Block(nn.Module):
    def __init__(self, vocab_size: int, dim: int, hidden_dim: int, num_experts: int, top_k: int):
        super().__init__()
        self.tok_embeddings = nn.Parameter(torch.randn(vocab_size, dim) * 0.02)
        self.ffn_norm = nn.Parameter(torch.ones(dim))
        self.moe = MoE(dim, hidden_dim, num_experts, top_k)
        self.output = nn.Parameter(torch.randn(vocab_size, dim) * 0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = F.embedding(tokens, self.tok_embeddings)
        hidden = hidden.flatten(0, 1)
        normed = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-5) * self.ffn_norm
        hidden = hidden + self.moe(normed)
        return F.linear(hidden, self.output)


def apply_moe_tp(model: Block, tp_mesh: DeviceMesh) -> Block:
    plan = {"w1": Shard(1), "w3": Shard(1), "w2": Shard(2)}
    for module in model.modules():
        for name, param in list(module.named_parameters(recurse=False)):
            placement = plan.get(name, Replicate()) if isinstance(module, MoE) else Replicate()
            module.register_parameter(name, nn.Parameter(distribute_tensor(param.data, tp_mesh, [placement])))
    return model


def main(vocab_size=256, dim=64, hidden_dim=128, num_experts=4, top_k=2, steps=10):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    tp_mesh = init_device_mesh(device_type, (dist.get_world_size(),), mesh_dim_names=("tp",))

    torch.manual_seed(0)
    model = Block(vocab_size, dim, hidden_dim, num_experts, top_k).to(device_type)
    apply_moe_tp(model, tp_mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        batch = torch.randint(vocab_size, (4, 33), generator=generator).to(device_type)
        tokens = distribute_tensor(batch[:, :-1].contiguous(), tp_mesh, [Replicate()])
        labels = distribute_tensor(batch[:, 1:].contiguous(), tp_mesh, [Replicate()])
        logits = model(tokens)
        loss = F.cross_entropy(logits.float(), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.to_local().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
