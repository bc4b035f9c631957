"""Loss over gathered logits of a vocabulary-parallel head."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


def head_loss(hidden, head_shard, labels):
    # head_shard: [vocab/tp, h]
    hidden = copy_to_tensor_model_parallel_region(hidden)
    logits = F.linear(hidden, head_shard)
    logits = gather_from_tensor_model_parallel_region(logits)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
