# MindSpeed !352 (13bdb602; compare !294): under Ulysses the batch is cut into contiguous parts but the rotary
# embedding of a rank is still taken in Megatron's load-balanced head/tail order; positions do not match.
import torch
from megatron.core import mpu, parallel_state
from megatron.training import get_args


def get_batch_on_this_cp_rank(batch):
    """Slice batch input along sequence dimension into multiple chunks, parallelized across context parallelism."""
    args = get_args()
    if args.context_parallel_size == 1:
        return batch
    for key, val in batch.items():
        if val is None or key == 'attention_mask':
            continue
        if args.context_parallel_algo == 'megatron_cp_algo':
            batch[key] = _head_and_tail_chunk(val, seq_dim=1)
        elif args.context_parallel_algo == 'ulysses_cp_algo':
            batch[key] = val.chunk(args.context_parallel_size, dim=1)[mpu.get_context_parallel_rank()].contiguous()
    return batch


def _head_and_tail_chunk(val, seq_dim):
    cp_size = parallel_state.get_context_parallel_world_size()
    cp_rank = parallel_state.get_context_parallel_rank()
    cp_idx = torch.tensor([cp_rank, (2 * cp_size - cp_rank - 1)], device=val.device)
    val = val.view(*val.shape[:seq_dim], 2 * cp_size, -1, *val.shape[(seq_dim + 1):])
    val = val.index_select(seq_dim, cp_idx)
    return val.view(*val.shape[:seq_dim], -1, *val.shape[(seq_dim + 2):])


def get_pos_emb_on_this_cp_rank(pos_emb, seq_dim):
    args = get_args()
    if args.context_parallel_size > 1 and args.context_parallel_algo == 'ulysses_cp_algo':
        cp_rank = parallel_state.get_context_parallel_rank()
        pos_emb = pos_emb.chunk(args.context_parallel_size, dim=seq_dim)[cp_rank]
    elif args.context_parallel_size > 1:
        pos_emb = _head_and_tail_chunk(pos_emb, seq_dim)
    return pos_emb


class RotaryEmbedding(torch.nn.Module):
    """The embedding is applied to the local queries and keys, before the all-to-all of the attention."""

    def __init__(self, kv_channels, rotary_base=10000):
        super().__init__()
        self.inv_freq = 1.0 / (
            rotary_base ** (torch.arange(0, kv_channels, 2, dtype=torch.float32, device='cuda') / kv_channels)
        )

    def forward(self, max_seq_len):
        seq = torch.arange(max_seq_len, device=self.inv_freq.device, dtype=self.inv_freq.dtype)
        freqs = torch.outer(seq, self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)[:, None, None, :]
        return get_pos_emb_on_this_cp_rank(emb, 0)
