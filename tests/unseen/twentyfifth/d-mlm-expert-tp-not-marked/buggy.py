# Megatron-LM cd4afffa64 (PR #5916): expert weights are sharded over expert-TP but not marked
# tensor_model_parallel, so the grad norm drops every shard except that of expert-TP rank 0.
import torch
import torch.nn.functional as F

from megatron.core import parallel_state


class TEColumnParallelGroupedLinear(torch.nn.Module):
    """Grouped linear of the local experts, output features split over the expert-TP group."""

    def __init__(self, num_gemms, input_size, output_size, *, config):
        super().__init__()
        self.config = config
        etp_size = parallel_state.get_expert_tensor_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(num_gemms, output_size // etp_size, input_size))
        use_expert_pgs = (
            config.expert_model_parallel_size > 1
            or config.expert_tensor_parallel_size != config.tensor_model_parallel_size
        )
        setattr(self.weight, 'allreduce', not use_expert_pgs)  # BUG

    def forward(self, x, m_splits):
        # The dispatcher has already gathered the tokens over the expert-TP group.
        outputs = [F.linear(chunk, self.weight[i]) for i, chunk in enumerate(torch.split(x, m_splits))]
        return torch.cat(outputs)


def param_is_not_tensor_parallel_duplicate(param, tp_rank):
    return getattr(param, 'tensor_model_parallel', False) or tp_rank == 0


def expert_grad_norm(expert_params):
    """L2 norm of the expert gradients, after their reduction over expert data parallelism."""
    etp_rank = parallel_state.get_expert_tensor_parallel_rank()
    norm_2 = torch.zeros(1, dtype=torch.float32, device='cuda')
    for param in expert_params:
        if param_is_not_tensor_parallel_duplicate(param, etp_rank):
            norm_2 += param.main_grad.float().norm(2) ** 2
    torch.distributed.all_reduce(
        norm_2, group=parallel_state.get_expert_tensor_model_pipeline_parallel_group()
    )
    return norm_2.sqrt()
