# What it does: a test computes a weight gradient: each rank takes its share of the batch, the shares are added over the ranks, and the rest of the batch is summed here (Ascend/MindSpeed tests_extend/unit_tests/features/coc/test_coc_row_parallel_linear.py:83 has the same finding).
# Why it is right: the gradient is the sum over all rows of the batch of dy^T x; adding the shares over the ranks first is the same sum, as dy is the same for all rows.
import torch, torch.distributed as dist


def weight_gradient(dy, x, tp_group):
    # dy: (s, n), x: (b, s, k), equal on all ranks
    x = torch.chunk(x, dist.get_world_size(tp_group), dim=0)[dist.get_rank(tp_group)]
    dist.all_reduce(x, group=tp_group)
    return torch.matmul(dy.t(), x).sum(dim=0)
