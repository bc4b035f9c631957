"""ZeRO-2 step: each rank updates its partition, then the partitions are gathered."""
import torch
from deepspeed import comm as dist


def all_gather_partitions(partitions, group):
    dist.all_gather(partitions, partitions[dist.get_rank(group=group)], group=group)


class ZeroStage2Step:
    def __init__(self, bit16_groups_flat, fp32_partitions, dp_process_group, expert_dp_process_group, inner):
        # param group 0 holds the dense parameters, group 1 those of the experts
        self.real_dp_process_group = [dp_process_group, expert_dp_process_group]
        self.fp32_partitions, self.inner = fp32_partitions, inner
        self.bit16_partitions = []
        for flat, group in zip(bit16_groups_flat, self.real_dp_process_group):
            self.bit16_partitions.append(list(torch.chunk(flat, dist.get_world_size(group=group))))

    def step(self, averaged_gradients):
        for i, fp32_partition in enumerate(self.fp32_partitions):
            partition_id = dist.get_rank(group=self.real_dp_process_group[i])
            fp32_partition.grad = averaged_gradients[i][partition_id].to(fp32_partition.dtype)
        self.inner.step()  # updates fp32_partitions
        for i, fp32_partition in enumerate(self.fp32_partitions):
            group = self.real_dp_process_group[i]
            partition_id = dist.get_rank(group=group)
            partitions = self.bit16_partitions[i]
            partitions[partition_id].data.copy_(fp32_partition.data)
            all_gather_partitions(partitions, group)
