# verl 10175743f (#4250)
"""Log-probabilities of the next token under zigzag context parallelism."""
import torch
from megatron.core import parallel_state as mpu

from verl.utils.megatron.tensor_parallel import vocab_parallel_log_probs_from_logits


def split_cp(x: torch.Tensor) -> torch.Tensor:
    """Rank r keeps chunks r and 2 * cp - 1 - r of the sequence."""
    cp_size, cp_rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    if cp_size <= 1:
        return x
    chunks = x.chunk(2 * cp_size, dim=1)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=1)


def forward_step(model, batch, temperature=1.0):
    # input_ids, loss_mask: [b, s], s divisible by 2 * cp; the last position is masked out
    input_ids, loss_mask = batch["input_ids"], batch["loss_mask"]
    position_ids = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids)
    local_ids = split_cp(input_ids)
    logits = model(local_ids, split_cp(position_ids), None)  # [b, s / cp, vocab / tp]
    logits = logits.float() / temperature
    label = torch.roll(local_ids, shifts=-1, dims=1)  # BUG: chunk borders get the first token of another chunk
    log_probs = vocab_parallel_log_probs_from_logits(logits, label)
    return log_probs * split_cp(loss_mask)
