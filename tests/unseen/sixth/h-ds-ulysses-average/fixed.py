"""ZeRO gradient averaging with Ulysses sequence parallelism."""
import torch
import torch.distributed as dist


class DeepSpeedZeroOptimizer:
    def __init__(self, params, seq_dp_group, sequence_parallel_size):
        self.params = list(params)
        # data-parallel and sequence-parallel ranks together
        self.dp_process_group = seq_dp_group
        self.sequence_parallel_size = sequence_parallel_size

    def reduce_ipg_grads(self):
        for p in self.params:
            p.grad.div_(dist.get_world_size(group=self.dp_process_group) / float(self.sequence_parallel_size))
            dist.all_reduce(p.grad, group=self.dp_process_group)


def compute_loss(token_loss, loss_mask, sp_group):
    # token_loss: the tokens of this sequence rank
    total = loss_mask.sum()
    dist.all_reduce(total, group=sp_group)
    return (token_loss * loss_mask).sum() / total
