"""ZeRO stage 3: norm and clipping of partitioned gradients."""
# Source: deepspeedai/DeepSpeed pull request 1021 (thread title and summary; code from memory)
import torch
import torch.distributed as dist


class DeepSpeedZeroOptimizer_Stage3:
    """Each data-parallel rank owns one partition of every parameter's gradient."""

    def __init__(self, params, optimizer, dp_process_group, clip_grad, mpu=None):
        self.params, self.optimizer = list(params), optimizer
        self.dp_process_group, self.clip_grad, self.mpu = dp_process_group, clip_grad, mpu
        self.partition_count = dist.get_world_size(dp_process_group)
        self.grad_partitions = {}

    def reduce_and_partition(self, param):
        flat = param.grad.float().flatten()
        padded = -(-flat.numel() // self.partition_count) * self.partition_count
        flat = torch.nn.functional.pad(flat, (0, padded - flat.numel()))
        partition = flat.new_empty(padded // self.partition_count)
        dist.reduce_scatter_tensor(partition, flat, op=dist.ReduceOp.AVG, group=self.dp_process_group)
        self.grad_partitions[param] = partition
        param.grad = None

    def _model_parallel_all_reduce(self, tensor, op):
        if self.mpu is not None:
            dist.all_reduce(tensor, op=op, group=self.mpu.get_model_parallel_group())

    def complete_grad_norm_calculation(self):
        total = torch.zeros((), device="cuda")
        for param, partition in self.grad_partitions.items():
            replicated = not getattr(param, "model_parallel", False)
            if self.mpu is not None and replicated and self.mpu.get_model_parallel_rank() > 0:
                continue
            total += partition.norm(2) ** 2
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.dp_process_group)
        self._model_parallel_all_reduce(total, dist.ReduceOp.SUM)
        return total.sqrt()

    def unscale_and_clip_grads(self, total_norm):
        coef = torch.clamp(self.clip_grad / (total_norm + 1e-6), max=1.0)
        for partition in self.grad_partitions.values():
            partition.mul_(coef)

    def step(self):
        for param in self.params:
            if param.grad is not None:
                self.reduce_and_partition(param)
        norm = self.complete_grad_norm_calculation()
        if self.clip_grad > 0:
            self.unscale_and_clip_grads(norm)
        self.optimizer.step_partitions(self.grad_partitions)
        self.grad_partitions.clear()
        return norm
