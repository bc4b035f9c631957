"""Multimodal rotary embedding for a decoder trained with context parallelism."""
import torch
import torch.distributed as dist
from torch import Tensor, nn


def slice_for_cp_rank(x: Tensor, seq_dim: int, cp_group) -> Tensor:
    """The two chunks of the sequence that belong to this rank: i and 2 * cp - 1 - i."""
    cp_size, cp_rank = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    idx = torch.tensor([cp_rank, 2 * cp_size - cp_rank - 1], device=x.device)
    x = x.view(*x.shape[:seq_dim], 2 * cp_size, -1, *x.shape[seq_dim + 1:])
    x = x.index_select(seq_dim, idx)
    return x.reshape(*x.shape[:seq_dim], -1, *x.shape[seq_dim + 2:])


def get_batch_on_this_cp_rank(batch, cp_group):
    if dist.get_world_size(cp_group) == 1:
        return batch
    out = dict(batch)
    for key in ("tokens", "labels", "loss_mask"):
        out[key] = slice_for_cp_rank(batch[key], 1, cp_group)
    return out


class MultimodalRotaryEmbedding(nn.Module):
    def __init__(self, kv_channels, mrope_section, rotary_base=10000, cp_group=None):
        super().__init__()
        self.mrope_section = mrope_section
        self.cp_group = cp_group
        inv_freq = 1.0 / (rotary_base ** (torch.arange(0, kv_channels, 2, dtype=torch.float32) / kv_channels))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, position_ids: Tensor) -> Tensor:
        # position_ids: [3, b, s] for time, height and width, of the whole sequence
        freqs = position_ids[..., None].float() * self.inv_freq
        emb = torch.cat((freqs, freqs), dim=-1)
        sections = emb.split(self.mrope_section * 2, dim=-1)
        emb = torch.cat([m[i % 3] for i, m in enumerate(sections)], dim=-1)
        emb = emb[..., None, :].transpose(0, 1).contiguous()  # [s, b, 1, d]
        if self.cp_group is not None and dist.get_world_size(self.cp_group) > 1:
            emb = slice_for_cp_rank(emb, 0, self.cp_group)
        return emb


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def apply_rotary_pos_emb(t: Tensor, freqs: Tensor) -> Tensor:
    return (t * freqs.cos() + rotate_half(t) * freqs.sin()).type_as(t)


class SelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, core_attention):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.linear_qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.linear_proj = nn.Linear(hidden_size, hidden_size)
        self.core_attention = core_attention  # exchanges keys and values over the cp group

    def forward(self, hidden, rotary_pos_emb):
        s, b, h = hidden.shape
        q, k, v = self.linear_qkv(hidden).view(s, b, self.num_heads, 3 * self.head_dim).chunk(3, dim=-1)
        q = apply_rotary_pos_emb(q, rotary_pos_emb)
        k = apply_rotary_pos_emb(k, rotary_pos_emb)
        return self.linear_proj(self.core_attention(q, k, v).reshape(s, b, h))


def forward_step(model, rotary, batch, cp_group, dp_cp_group):
    rotary_pos_emb = rotary(batch["position_ids"])
    batch = get_batch_on_this_cp_rank(batch, cp_group)
    losses = model(batch["tokens"], batch["labels"], rotary_pos_emb)
    mask = batch["loss_mask"].float()
    count = mask.sum()
    dist.all_reduce(count, group=dp_cp_group)
    # the wrapper averages gradients over dp_cp_group
    return (losses * mask).sum() / count * dist.get_world_size(dp_cp_group)
