# verl, pull 4250: the next-token labels have to be shifted before the sequence is split over context-parallel ranks;
# a roll of the local chunks gives the last token of a chunk a label from the wrong place.
"""Log-probabilities of a sequence with zigzag context parallelism."""
import torch
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy


def preprocess_seqs(x: torch.Tensor) -> torch.Tensor:
    """Split (batch, seq) into 2 * cp_size chunks; rank i gets the chunks i and 2 * cp_size - 1 - i."""
    cp_size, cp_rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    chunks = x.chunk(2 * cp_size, dim=1)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=1)


def forward_log_probs(model, input_ids, position_ids, loss_mask):
    # loss_mask is zero at the last token of each sequence
    local_ids = preprocess_seqs(input_ids)
    logits = model(local_ids, preprocess_seqs(position_ids), attention_mask=None)  # (batch, seq / cp, vocab / tp)
    label = torch.roll(local_ids, shifts=-1, dims=1)  # BUG: wraps at the end of the local chunks
    log_probs = -vocab_parallel_cross_entropy(logits.transpose(0, 1).contiguous(), label.t().contiguous()).t()
    return log_probs, preprocess_seqs(loss_mask)


def sft_loss(model, batch, batch_num_tokens):
    log_probs, mask = forward_log_probs(model, batch["input_ids"], batch["position_ids"], batch["loss_mask"])
    dp_cp_size = mpu.get_data_parallel_world_size(with_context_parallel=True)
    # batch_num_tokens: over all data- and context-parallel ranks; DDP averages over these
    return -(log_probs * mask).sum() / batch_num_tokens * dp_cp_size
