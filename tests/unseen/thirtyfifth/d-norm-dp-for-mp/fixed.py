"""Global gradient norm of a ZeRO-2 optimizer with model parallelism."""
# thread: deepspeedai/DeepSpeed#2094
import torch
import torch.distributed as dist


def is_model_parallel_parameter(p):
    return getattr(p, "model_parallel", False)


class DeepSpeedZeroOptimizer:
    def __init__(self, partitions, inner, dp_process_group, mpu, clip_grad):
        # partitions: (param, averaged gradient) pairs of this data-parallel rank's share
        self.partitions, self.inner, self.clip_grad = partitions, inner, clip_grad
        self.dp_process_group, self.mpu = dp_process_group, mpu

    def get_grad_norm_direct(self):
        total = torch.zeros((), dtype=torch.float64, device="cuda")
        for p, g in self.partitions:
            # replicated parameters count once per model-parallel group
            if is_model_parallel_parameter(p) or self.mpu.get_model_parallel_rank() == 0:
                total += g.detach().double().square().sum()
        # sum over the gradient partitions, then over the model-parallel shards
        dist.all_reduce(total, group=self.dp_process_group)
        dist.all_reduce(total, group=self.mpu.get_model_parallel_group())
        return total.sqrt()

    def step(self):
        norm = self.get_grad_norm_direct()
        scale = torch.clamp(self.clip_grad / (norm + 1e-6), max=1.0).float()
        for p, g in self.partitions:
            p.grad = g * scale
        self.inner.step()
