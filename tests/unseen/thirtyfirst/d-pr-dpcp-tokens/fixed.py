"""RL trainer step with FSDP2 over the flattened (dp, cp) mesh and ring attention over cp."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel


class Block(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.wqkv(self.norm1(x)).view(b, s, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        attn = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(attn.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Policy(nn.Module):
    def __init__(self, vocab, max_len, dim, n_layers, n_heads):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.layers = nn.ModuleList(Block(dim, n_heads) for _ in range(n_layers))
        self.norm = nn.RMSNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, position_ids):
        x = self.embed(input_ids) + self.pos(position_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def policy_loss(logits, targets, old_logprobs, advantages, loss_mask, clip=0.2):
    """Summed over the (local) tokens, the caller normalizes."""
    logprobs = -F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    ratio = torch.exp(logprobs.view_as(targets) - old_logprobs)
    per_token = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return (per_token * loss_mask).sum()


class MicroBatches:
    """Rollouts packed per data parallel rank; cp peers read the same micro batches."""

    def __init__(self, dp_rank, seq_len, vocab, num_micro, seed):
        self.generator = torch.Generator().manual_seed(seed + dp_rank)
        self.seq_len, self.vocab, self.num_micro = seq_len, vocab, num_micro

    def next_step(self, device):
        micro_batches = []
        for _ in range(self.num_micro):
            shape = (1, self.seq_len)
            tokens = torch.randint(self.vocab, (1, self.seq_len + 1), generator=self.generator)
            micro = {
                "input_ids": tokens[:, :-1].contiguous(),
                "targets": tokens[:, 1:].contiguous(),
                "position_ids": torch.arange(self.seq_len).unsqueeze(0),
                "old_logprobs": -6.0 + 0.1 * torch.randn(shape, generator=self.generator),
                "advantages": torch.randn(shape, generator=self.generator),
                "loss_mask": (torch.rand(shape, generator=self.generator) < 0.7).float(),
            }
            micro_batches.append({name: value.to(device) for name, value in micro.items()})
        return micro_batches


def train_step(model, optimizer, micro_batches, mesh, dp_cp_mesh, device):
    local_tokens = sum(micro["loss_mask"].sum() for micro in micro_batches)
    loss_scale = local_tokens.to(torch.int64)
    dist.all_reduce(loss_scale, op=dist.ReduceOp.SUM, group=mesh["dp"].get_group())
    loss_scale = max(loss_scale.item(), 1)
    # FSDP averages the gradients over all ranks of the flattened mesh
    fsdp_size = dp_cp_mesh.size()

    optimizer.zero_grad()
    total = torch.zeros((), device=device)
    for micro in micro_batches:
        buffers = list(micro.values())
        with context_parallel(
            mesh["cp"], buffers=buffers, buffer_seq_dims=[1] * len(buffers), no_restore_buffers=set(buffers)
        ):
            logits = model(micro["input_ids"], micro["position_ids"])
            loss = policy_loss(
                logits, micro["targets"], micro["old_logprobs"], micro["advantages"], micro["loss_mask"]
            )
            loss = loss / loss_scale
            (loss * fsdp_size).backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    dist.all_reduce(total)
    return total.item()


def main(vocab=2048, seq_len=4096, cp_size=2, steps=10, seed=0):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dp_size = dist.get_world_size() // cp_size
    mesh = init_device_mesh("cuda", (dp_size, cp_size), mesh_dim_names=("dp", "cp"))
    dp_cp_mesh = mesh["dp", "cp"]._flatten("dp_cp")

    torch.manual_seed(seed)
    model = Policy(vocab, seq_len, dim=512, n_layers=4, n_heads=8).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=dp_cp_mesh, mp_policy=policy)
    fully_shard(model, mesh=dp_cp_mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    data = MicroBatches(mesh.get_local_rank("dp"), seq_len, vocab, num_micro=2, seed=seed)
    for step in range(steps):
        loss = train_step(model, optimizer, data.next_step(device), mesh, dp_cp_mesh, device)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
