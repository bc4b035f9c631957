"""Reward model training with FSDP2; the scalar head stays in fp32 outside of the sharded groups."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.attn_norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.mlp_norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.attn_norm(x)).view(b, s, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(out.transpose(1, 2).reshape(b, s, d))
        return x + self.fc2(F.gelu(self.fc1(self.mlp_norm(x))))


class RewardModel(nn.Module):
    def __init__(self, vocab, max_len, dim, n_layers, n_heads):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(max_len, dim)
        self.layers = nn.ModuleList(Block(dim, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)
        self.score = nn.Linear(dim, 1, bias=True)

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.score(self.norm(x)[:, -1].float()).squeeze(-1)


class RewardEngine:
    def __init__(self, model: RewardModel, mesh, lr: float, use_bf16: bool):
        self.model, self.mesh = model, mesh
        self.replicated_params = list(model.score.parameters())
        policy = MixedPrecisionPolicy()
        if use_bf16:
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy, ignored_params=set(self.replicated_params))

        replicated = {id(p) for p in self.replicated_params}
        sharded_params = [p for p in model.parameters() if id(p) not in replicated]
        self.optimizer = torch.optim.AdamW(
            [{"params": sharded_params}, {"params": self.replicated_params, "weight_decay": 0.0}], lr=lr
        )

    def sync_replicated_grads(self):
        group = self.mesh.get_group()
        for param in self.replicated_params:
            dist.all_reduce(param.grad, group=group)
            param.grad.div_(self.mesh.size())

    def train_batch(self, chosen, rejected):
        self.optimizer.zero_grad()
        rewards = self.model(torch.cat([chosen, rejected], dim=0))
        chosen_rewards, rejected_rewards = rewards.chunk(2)
        loss = -F.logsigmoid(chosen_rewards - rejected_rewards).mean()
        loss.backward()
        self.sync_replicated_grads()
        self.optimizer.step()

        stats = torch.stack([loss.detach(), (chosen_rewards > rejected_rewards).float().mean()])
        dist.all_reduce(stats, group=self.mesh.get_group())
        stats /= self.mesh.size()
        return {"loss": stats[0].item(), "acc": stats[1].item()}


def main(vocab=1024, seq_len=64, steps=20, seed=1):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device_type, (dist.get_world_size(),), mesh_dim_names=("fsdp",))

    torch.manual_seed(seed)
    model = RewardModel(vocab, seq_len, dim=128, n_layers=2, n_heads=4).to(device_type)
    engine = RewardEngine(model, mesh, lr=1e-4, use_bf16=device_type == "cuda")

    generator = torch.Generator().manual_seed(seed + 1 + dist.get_rank())
    for step in range(steps):
        chosen = torch.randint(vocab, (4, seq_len), generator=generator).to(device_type)
        rejected = torch.randint(vocab, (4, seq_len), generator=generator).to(device_type)
        stats = engine.train_batch(chosen, rejected)
        if dist.get_rank() == 0:
            print(f"step {step} loss {stats['loss']:.4f} acc {stats['acc']:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
