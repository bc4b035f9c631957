"""Packed forward pass of the Megatron critic/actor under context parallelism."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy


def cp_select(tokens):
    """Two of the 2 * cp_size chunks of a sequence: one from the front, one from the back."""
    cp_size = mpu.get_context_parallel_world_size()
    if cp_size == 1:
        return tokens
    cp_rank = mpu.get_context_parallel_rank()
    chunks = tokens.chunk(2 * cp_size, dim=0)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=0)


def pad_to_multiple(tokens, multiple, value):
    extra = -tokens.size(0) % multiple
    if extra == 0:
        return tokens
    return torch.cat([tokens, tokens.new_full((extra,), value)])


def shift_left(tokens, fill):
    return torch.cat([tokens[1:], tokens.new_full((1,), fill)])


def preprocess_packed(sequences, loss_masks, pad_token_id):
    """Pack sequences for this rank.

    Returns input ids, labels, label mask (all 1-D, local) and the packing parameters.
    """
    cp_size = mpu.get_context_parallel_world_size()
    tp_size = mpu.get_tensor_model_parallel_world_size()
    align = 2 * cp_size * tp_size if cp_size > 1 else tp_size

    input_ids, labels, masks, lengths = [], [], [], [0]
    for tokens, mask in zip(sequences, loss_masks):
        tokens = pad_to_multiple(tokens, align, pad_token_id)
        mask = pad_to_multiple(mask, align, 0)
        lengths.append(lengths[-1] + tokens.size(0))
        local = cp_select(tokens)
        input_ids.append(local)
        labels.append(shift_left(local, pad_token_id))  # BUG
        masks.append(shift_left(cp_select(mask), 0))  # BUG

    cu_seqlens = torch.tensor(lengths, dtype=torch.int32, device=input_ids[0].device)
    longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
    params = PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_kv=cu_seqlens,
        cu_seqlens_q_padded=cu_seqlens,
        cu_seqlens_kv_padded=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
    return torch.cat(input_ids), torch.cat(labels), torch.cat(masks), params


def forward_logps(model, sequences, loss_masks, pad_token_id):
    ids, labels, mask, params = preprocess_packed(sequences, loss_masks, pad_token_id)
    logits = model(
        input_ids=ids.unsqueeze(0),
        position_ids=None,
        attention_mask=None,
        packed_seq_params=params,
    )
    losses = vocab_parallel_cross_entropy(logits.transpose(0, 1).contiguous(), labels.unsqueeze(1))
    return -losses.squeeze(1), mask


def sft_loss(model, batch, pad_token_id):
    logps, mask = forward_logps(model, batch["sequences"], batch["loss_masks"], pad_token_id)
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    count = mask.sum().float()
    dist.all_reduce(count, group=group)
    return -(logps * mask).sum() / count.clamp(min=1) * dist.get_world_size(group)
