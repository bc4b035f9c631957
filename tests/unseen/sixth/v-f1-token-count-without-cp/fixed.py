"""Per-token loss with context parallelism."""
import torch
from megatron.core import parallel_state


def finalize_model_grads(model, num_tokens):
    dp_cp_group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for p in model.parameters():
        torch.distributed.all_reduce(p.main_grad, group=dp_cp_group)
    # each context-parallel rank counts its own tokens
    torch.distributed.all_reduce(num_tokens, group=dp_cp_group)
    for p in model.parameters():
        p.main_grad.div_(num_tokens)
