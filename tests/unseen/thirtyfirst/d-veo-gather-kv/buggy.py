"""Sequence parallel causal attention: queries stay local, keys and values are gathered."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

_SP_GROUP = None


def init_sequence_parallel(group=None):
    global _SP_GROUP
    _SP_GROUP = group if group is not None else dist.group.WORLD


def get_sp_rank():
    return dist.get_rank(_SP_GROUP)


def get_sp_world_size():
    return dist.get_world_size(_SP_GROUP)


class _Gather(torch.autograd.Function):
    """All-gather along `dim`; every rank consumes the gathered tensor with its own queries."""

    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        parts = [torch.empty_like(x) for _ in range(get_sp_world_size())]
        dist.all_gather(parts, x.contiguous(), group=_SP_GROUP)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.chunk(get_sp_world_size(), dim=ctx.dim)[get_sp_rank()].contiguous(), None  # BUG


def gather_outputs(x, dim):
    return _Gather.apply(x, dim)


def slice_input_tensor(x, dim):
    return x.chunk(get_sp_world_size(), dim=dim)[get_sp_rank()].contiguous()


class SequenceParallelAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4)
        k, v = gather_outputs(k, dim=2), gather_outputs(v, dim=2)
        q_pos = get_sp_rank() * s + torch.arange(s, device=x.device)
        k_pos = torch.arange(k.size(2), device=x.device)
        mask = q_pos[:, None] >= k_pos[None, :]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(out.transpose(1, 2).reshape(b, s, d))


class Model(nn.Module):
    def __init__(self, vocab_size, max_len, dim, num_heads, num_layers):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.pos = nn.Embedding(max_len, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(num_layers))
        self.layers = nn.ModuleList(SequenceParallelAttention(dim, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, input_ids, position_ids):
        x = self.embed(input_ids) + self.pos(position_ids)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(self.norm(x))


def train_step(model, optimizer, batch):
    input_ids, labels = batch[:, :-1], batch[:, 1:]
    position_ids = torch.arange(input_ids.size(1), device=batch.device).expand_as(input_ids)
    num_tokens = labels.numel()
    logits = model(slice_input_tensor(input_ids, 1), slice_input_tensor(position_ids, 1))
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), slice_input_tensor(labels, 1).flatten(), reduction="sum"
    )
    loss = loss / num_tokens
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for param in model.parameters():
        dist.all_reduce(param.grad, group=_SP_GROUP)
    optimizer.step()
    loss = loss.detach().clone()
    dist.all_reduce(loss, group=_SP_GROUP)
    return loss


def main(vocab_size=512, seq_len=128, steps=10):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    init_sequence_parallel()
    torch.manual_seed(0)
    model = Model(vocab_size, seq_len, dim=64, num_heads=4, num_layers=2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(3)
    for step in range(steps):
        # one long sequence per step, shared by the whole sequence parallel group
        batch = torch.randint(vocab_size, (1, seq_len + 1), generator=generator).to(device)
        loss = train_step(model, optimizer, batch)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
