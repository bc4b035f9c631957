# verl 10175743f (PR #4250): the next-token labels are made by rolling the packed ids after they were split
# over context parallelism, so the last token of every local chunk gets a label of another chunk.
import torch
from megatron.core import parallel_state as mpu

from verl.utils.megatron.tensor_parallel import vocab_parallel_log_probs_from_logits


def preprocess_packed_seqs_no_padding(input_ids: list[torch.Tensor]) -> torch.Tensor:
    """
    CP splits sequence into CP*2 chunks, and each GPU gets 2 chunks (GPU0 gets first and last chunks, GPU1
    gets second and second last chunks, and so on), this is for load balancing with causal masking.
    Sequences come padded to a multiple of CP*2; the result is packed, [1, total_tokens / CP].
    """
    cp_size = mpu.get_context_parallel_world_size()
    cp_rank = mpu.get_context_parallel_rank()
    chunks = []
    for d in input_ids:
        half_seqlen = d.shape[0] // (2 * cp_size)
        chunks.append(d[half_seqlen * cp_rank : half_seqlen * (cp_rank + 1)])
        remain_start = d.shape[0] - half_seqlen * (cp_rank + 1)
        chunks.append(d[remain_start : remain_start + half_seqlen])
    return torch.cat(chunks).unsqueeze(0)


class MegatronEngineWithLMHead:
    def forward_step(self, model, input_ids: list[torch.Tensor], loss_mask: list[torch.Tensor], packed_seq_params):
        # loss_mask is zero on the last token of every sequence.
        input_ids_rmpad = preprocess_packed_seqs_no_padding(input_ids)
        label = preprocess_packed_seqs_no_padding(input_ids)
        loss_mask_rmpad = preprocess_packed_seqs_no_padding(loss_mask)
        logits = model(
            input_ids=input_ids_rmpad, attention_mask=None, position_ids=None, packed_seq_params=packed_seq_params
        )
        label = torch.roll(label, shifts=-1, dims=1)  # BUG
        log_probs = vocab_parallel_log_probs_from_logits(logits, label)
        return {"log_probs": log_probs, "loss_mask": loss_mask_rmpad}
