"""Language-model loss with context parallelism (two chunks of the sequence on each rank).

After verl-project/verl PR #4250 (verl/models/mcore, context-parallel preprocessing).
"""
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy


def select_for_cp_rank(x, dim=1):
    """Chunks r and 2 * cp - 1 - r of 2 * cp chunks, so that causal work is balanced."""
    cp_size = parallel_state.get_context_parallel_world_size()
    cp_rank = parallel_state.get_context_parallel_rank()
    if cp_size == 1:
        return x
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=dim)


def preprocess(input_ids, loss_mask):
    """input_ids, loss_mask: [b, s] of the whole sequence, the same on each context rank."""
    positions = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids)
    # position i predicts token i + 1
    label_mask = loss_mask.float().roll(-1, dims=1)
    label_mask[:, -1] = 0
    num_tokens = label_mask.sum()
    local_ids = select_for_cp_rank(input_ids)
    labels = select_for_cp_rank(input_ids.roll(-1, dims=1))
    return {
        "input_ids": local_ids,
        "position_ids": select_for_cp_rank(positions),
        "labels": labels,
        "label_mask": select_for_cp_rank(label_mask),
        "num_tokens": num_tokens,
    }


def token_logprobs(logits, labels):
    """logits: [b, s / cp, vocab / tp] -> log-probability of each label."""
    loss = vocab_parallel_cross_entropy(logits.transpose(0, 1).contiguous(), labels.t().contiguous())
    return -loss.t()


def forward_backward(model, micro_batches):
    """Gradients are averaged over the dp x cp ranks by Megatron's DDP."""
    cp_size = parallel_state.get_context_parallel_world_size()
    total = torch.zeros((), device="cuda")
    for batch in micro_batches:
        inputs = preprocess(batch["input_ids"], batch["loss_mask"])
        logits = model(inputs["input_ids"], inputs["position_ids"], attention_mask=None)
        logprobs = token_logprobs(logits, inputs["labels"])
        loss = -(logprobs * inputs["label_mask"]).sum() / inputs["num_tokens"].clamp(min=1)
        total += loss.detach()
        (loss * cp_size / len(micro_batches)).backward()
    # the shares of the context ranks add up to the mean over the sequence
    dist.all_reduce(total, group=parallel_state.get_context_parallel_group())
    return total / len(micro_batches)
