# ColossalAI 077a5cdde (PR #2521): compute_norm has already summed the shards over data parallelism and
# then all-reduces over the default (world) group instead of the model-parallel group.
from typing import List, Optional

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from colossalai.utils import is_model_parallel_parameter


def compute_norm(
    gradients: List[torch.Tensor],
    params: List[torch.nn.Parameter],
    dp_group: ProcessGroup,
    mp_group: Optional[ProcessGroup],
    norm_type: int = 2,
) -> float:
    """Norm of the gradient shards that this rank owns after ZeRO's reduction.

    gradients[i] belongs to params[i]; each gradient lives on exactly one rank of dp_group.
    """
    mp_rank = 0 if mp_group is None else dist.get_rank(mp_group)
    total_norm = 0.0
    for g, p in zip(gradients, params):
        # Replicated parameters are counted on the first model-parallel rank only.
        if is_model_parallel_parameter(p) or mp_rank == 0:
            param_norm = g.data.double().norm(norm_type)
            total_norm += param_norm.item() ** norm_type

    # Sum across all model parallel GPUs.
    total_norm_cuda = torch.cuda.FloatTensor([float(total_norm)])
    dist.all_reduce(total_norm_cuda, op=dist.ReduceOp.SUM, group=dp_group)
    if mp_group is not None:
        dist.all_reduce(tensor=total_norm_cuda, op=dist.ReduceOp.SUM)  # BUG
    return total_norm_cuda[0].item() ** (1.0 / norm_type)


class LowLevelZeroOptimizer:
    def __init__(self, optim, clip_grad_norm, dp_process_group, mp_process_group):
        self.optim = optim
        self._clip_grad_norm = clip_grad_norm
        self._dp_global_group = dp_process_group
        self._mp_torch_group = mp_process_group

    def step(self, single_grad_partition_groups, master_params):
        norm = 0.0
        for grads, params in zip(single_grad_partition_groups, master_params):
            norm += compute_norm(grads, params, self._dp_global_group, self._mp_torch_group) ** 2
        clip = (norm**0.5 + 1e-6) / self._clip_grad_norm
        if clip > 1.0:
            for grads in single_grad_partition_groups:
                for grad in grads:
                    grad.data.mul_(1.0 / clip)
        self.optim.step()
