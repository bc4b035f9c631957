# InternEvo 73b6894 (PR #58): the GQA groups take every num_kv_attention_heads-th rank, but consecutive ranks
# hold the copies of one kv head; gradients of different kv heads are summed together.
import torch.distributed as dist

from internlm.core.context import ParallelMode
from internlm.core.context import global_context as gpc
from internlm.core.context.process_group_initializer import LLM_NCCL_TIMEOUT, ProcessGroupInitializer


class Initializer_GQA(ProcessGroupInitializer):
    """Groups of the tensor-parallel ranks that hold a copy of the same kv head.

    With more tensor-parallel ranks than kv heads, each kv head is repeated kv_head_repeats_num times.
    """

    def __init__(self, num_kv_attention_heads: int, *args):
        super().__init__(*args)
        self.num_kv_attention_heads = num_kv_attention_heads
        self.kv_head_repeats_num = self.tensor_parallel_size // num_kv_attention_heads
        self.num_kv_group_per_tp = num_kv_attention_heads

    def init_dist_group(self, use_cpu: bool = False):
        local_rank, ranks_in_group, process_group, cpu_group, group_world_size = None, None, None, None, None
        mode = ParallelMode.GQA
        for i in range(self.world_size // self.tensor_parallel_size):
            for j in range(self.num_kv_group_per_tp):
                ranks = [
                    i * self.tensor_parallel_size + j * self.kv_head_repeats_num + k
                    for k in range(self.kv_head_repeats_num)
                ]
                group = dist.new_group(ranks, timeout=LLM_NCCL_TIMEOUT)
                if self.rank in ranks:
                    local_rank = ranks.index(self.rank)
                    group_world_size = len(ranks)
                    process_group = group
                    cpu_group = None
                    ranks_in_group = ranks
        return local_rank, group_world_size, process_group, cpu_group, ranks_in_group, mode


def shard_kv_weight(full_kv_weight, head_dim, kv_head_repeats_num):
    """Rows of the kv head that the query heads of this tensor-parallel rank attend to."""
    kv_head = gpc.get_local_rank(ParallelMode.TENSOR) // kv_head_repeats_num
    return full_kv_weight[kv_head * head_dim : (kv_head + 1) * head_dim]


def reduce_kv_grads(model):
    for block in model.blocks:
        for linear in (block.mixer.wk, block.mixer.wv):
            dist.all_reduce(linear.weight.grad, group=gpc.get_group(ParallelMode.GQA))
