# thread: https://github.com/deepspeedai/DeepSpeed/pull/2058
"""Stage 2 optimizer: each rank steps its partition of the flat parameters and shares the result."""
import torch
from deepspeed import comm as dist
from torch._utils import _flatten_dense_tensors


def is_moe_group(group) -> bool:
    return bool(group.get("moe", False))


class ZeroStage2Optimizer:
    def __init__(self, init_optimizer, dp_process_group, expert_dp_process_group):
        self.optimizer = init_optimizer
        self.dp_process_group = dp_process_group
        # group of each parameter group: expert parameters have fewer replicas
        self.real_dp_process_group = [
            expert_dp_process_group if is_moe_group(g) else dp_process_group
            for g in self.optimizer.param_groups
        ]
        self.partition_count = [dist.get_world_size(group=g) for g in self.real_dp_process_group]
        self.bit16_groups, self.bit16_groups_flat, self.padding = [], [], []
        self.parallel_partitioned_bit16_groups = []
        self.single_partition_of_fp32_groups = []
        self._build_partitions()

    def _build_partitions(self):
        for i, param_group in enumerate(self.optimizer.param_groups):
            params = [p for p in param_group["params"] if p.requires_grad]
            self.bit16_groups.append(params)
            flat = self._flatten_aligned([p.data for p in params], self.partition_count[i])
            self.bit16_groups_flat.append(flat)
            self.padding.append(flat.numel() - sum(p.numel() for p in params))
            self._point_params_at(i)
            parts = list(flat.chunk(self.partition_count[i]))
            self.parallel_partitioned_bit16_groups.append(parts)
            rank = dist.get_rank(group=self.real_dp_process_group[i])
            master = parts[rank].clone().float().detach().requires_grad_(True)
            self.single_partition_of_fp32_groups.append(master)
            param_group["params"] = [master]

    @staticmethod
    def _flatten_aligned(tensors, count):
        flat = _flatten_dense_tensors(tensors)
        pad = -flat.numel() % count
        return torch.cat([flat, flat.new_zeros(pad)]) if pad else flat

    def _point_params_at(self, i):
        flat, offset = self.bit16_groups_flat[i], 0
        for p in self.bit16_groups[i]:
            p.data = flat.narrow(0, offset, p.numel()).view_as(p)
            offset += p.numel()

    def reduce_gradients(self):
        dp_world = dist.get_world_size(group=self.dp_process_group)
        for i, params in enumerate(self.bit16_groups):
            group = self.real_dp_process_group[i]
            grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in params]
            flat = self._flatten_aligned(grads, self.partition_count[i]).float() / dp_world
            shard = torch.empty_like(self.single_partition_of_fp32_groups[i])
            dist.reduce_scatter_tensor(shard, flat, group=group)
            self.single_partition_of_fp32_groups[i].grad = shard
            for p in params:
                p.grad = None

    @torch.no_grad()
    def step(self):
        self.reduce_gradients()
        for i, master in enumerate(self.single_partition_of_fp32_groups):
            partition_id = dist.get_rank(group=self.real_dp_process_group[i])
            if partition_id == self.partition_count[i] - 1 and self.padding[i]:
                master.grad[-self.padding[i]:].zero_()

        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for i, (bit16_parts, fp32_part) in enumerate(
            zip(self.parallel_partitioned_bit16_groups, self.single_partition_of_fp32_groups)
        ):
            partition_id = dist.get_rank(group=self.real_dp_process_group[i])
            bit16_parts[partition_id].data.copy_(fp32_part.data)
        self.all_gather_partitions()

    def all_gather_partitions(self):
        for i, parts in enumerate(self.parallel_partitioned_bit16_groups):
            group = self.real_dp_process_group[i]
            mine = parts[dist.get_rank(group=group)].clone()
            dist.all_gather(parts, mine, group=group)


def build_param_groups(model, lr):
    dense = [p for p in model.parameters() if getattr(p, "allreduce", True)]
    expert = [p for p in model.parameters() if not getattr(p, "allreduce", True)]
    groups = [{"params": dense, "lr": lr}]
    if expert:
        groups.append({"params": expert, "lr": lr, "moe": True})
    return groups


def train_batch(engine_module, optimizer: ZeroStage2Optimizer, batch):
    loss = engine_module(**batch)
    loss.backward()
    optimizer.step()
    return loss.detach()
