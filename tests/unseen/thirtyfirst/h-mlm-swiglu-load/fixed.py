"""Load a full (unsharded) checkpoint into a tensor parallel model with fused projections."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class TensorParallelContext:
    def __init__(self, group):
        self.group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def reduce(self, x):
        dist.all_reduce(x, group=self.group)
        return x


class FusedSelfAttention(nn.Module):
    def __init__(self, dim, num_heads, tp):
        super().__init__()
        self.tp, self.head_dim = tp, dim // num_heads
        self.qkv_proj = nn.Linear(dim, 3 * dim // tp.size, bias=False)
        self.o_proj = nn.Linear(dim // tp.size, dim, bias=False)

    def forward(self, x):
        q, k, v = self.qkv_proj(x).chunk(3, dim=-1)
        heads = lambda t: t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        out = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        return self.tp.reduce(self.o_proj(out.transpose(1, 2).flatten(2)))


class FusedSwiGLU(nn.Module):
    def __init__(self, dim, hidden, tp):
        super().__init__()
        self.tp = tp
        self.gate_up_proj = nn.Linear(dim, 2 * hidden // tp.size, bias=False)
        self.down_proj = nn.Linear(hidden // tp.size, dim, bias=False)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.tp.reduce(self.down_proj(F.silu(gate) * up))


class Layer(nn.Module):
    def __init__(self, dim, hidden, num_heads, tp):
        super().__init__()
        self.input_norm, self.post_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = FusedSelfAttention(dim, num_heads, tp)
        self.mlp = FusedSwiGLU(dim, hidden, tp)

    def forward(self, x):
        x = x + self.attn(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Model(nn.Module):
    def __init__(self, vocab, dim, hidden, num_heads, num_layers, tp):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, hidden, num_heads, tp) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def shard_fused_rows(weight, num_blocks, tp):
    """Rows are [block_0; block_1; ...]; every block is split over the ranks on its own."""
    blocks = weight.chunk(num_blocks, dim=0)
    return torch.cat([block.chunk(tp.size, dim=0)[tp.rank] for block in blocks], dim=0)


def shard_columns(weight, tp):
    return weight.chunk(tp.size, dim=1)[tp.rank]


def shard_parameter(name, weight, tp):
    if name.endswith("qkv_proj.weight"):
        return shard_fused_rows(weight, 3, tp)
    if name.endswith("gate_up_proj.weight"):
        return shard_fused_rows(weight, 2, tp)
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        return shard_columns(weight, tp)
    return weight


def load_full_checkpoint(model, path, tp):
    full_state = torch.load(path, map_location="cpu", weights_only=True)
    local_state = model.state_dict()
    missing = local_state.keys() - full_state.keys()
    if missing:
        raise KeyError(f"checkpoint misses {sorted(missing)}")
    for name, target in local_state.items():
        shard = shard_parameter(name, full_state[name], tp)
        if shard.shape != target.shape:
            raise ValueError(f"{name}: got {tuple(shard.shape)}, expected {tuple(target.shape)}")
        target.copy_(shard)


def write_reference_checkpoint(path, config):
    single = type("SingleRank", (), {"size": 1, "rank": 0, "reduce": staticmethod(lambda x: x)})
    torch.manual_seed(0)
    torch.save(Model(**config, tp=single).state_dict(), path)


@torch.no_grad()
def evaluate(model, batches, device):
    total, count = torch.zeros((), device=device), 0
    for batch in batches:
        logits = model(batch[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")
        count += batch[:, 1:].numel()
    return (total / count).item()


def main():
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    tp = TensorParallelContext(dist.new_group(list(range(dist.get_world_size()))))
    config = dict(vocab=256, dim=64, hidden=128, num_heads=4, num_layers=2)
    path = os.environ.get("CHECKPOINT", os.path.join(tempfile.gettempdir(), "full_model.pt"))
    if dist.get_rank() == 0 and not os.path.exists(path):
        write_reference_checkpoint(path, config)
    dist.barrier()

    model = Model(**config, tp=tp).to(device).eval()
    load_full_checkpoint(model, path, tp)
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randint(256, (2, 65), generator=generator).to(device) for _ in range(4)]
    loss = evaluate(model, batches, device)
    if dist.get_rank() == 0:
        print(f"tp={tp.size} validation loss {loss:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
