# Reduced from DeepSpeed runtime/zero/stage_1_and_2.py (deepspeedai/DeepSpeed pull request 5606, read).
# overlap_comm reduces one of two contiguous gradient buffers on a side stream, while backward fills the
# other one; average_tensor() is the point where the buffers are swapped.
# What happens: when communication is slower than backward, a buffer is filled again while its
# reduction still runs and gradients are corrupted.
import torch
from deepspeed import comm as dist
from deepspeed.accelerator import get_accelerator


class DeepSpeedZeroOptimizer:
    def __init__(self, params, dp_process_group, reduce_bucket_size, overlap_comm=True):
        self.dp_process_group, self.reduce_bucket_size = dp_process_group, reduce_bucket_size
        self.overlap_comm = overlap_comm
        self.reduction_stream = get_accelerator().Stream() if overlap_comm else get_accelerator().current_stream()
        self.ipg_buffer = [
            torch.empty(reduce_bucket_size, dtype=torch.bfloat16, device=get_accelerator().current_device_name())
            for _ in range(2 if overlap_comm else 1)
        ]
        self.ipg_index, self.elements_in_ipg_bucket, self.params_in_ipg_bucket = 0, 0, []
        self.averaged_gradients = {}
        for p in params:
            p.register_post_accumulate_grad_hook(self.reduce_independent_p_g_buckets_and_remove_grads)

    def average_tensor(self, tensor):
        if self.overlap_comm:
            stream = self.reduction_stream
            stream.wait_stream(get_accelerator().current_stream())
            # the buffer filled next is the one the previous reduction reads
            get_accelerator().current_stream().wait_stream(stream)
        else:
            stream = get_accelerator().current_stream()
        with get_accelerator().stream(stream):
            tensor.div_(dist.get_world_size(group=self.dp_process_group))
            dist.all_reduce(tensor, group=self.dp_process_group)
            for param, offset in self.params_in_ipg_bucket:
                self.averaged_gradients[param] = tensor.narrow(0, offset, param.numel()).clone().view_as(param)

    def reduce_ipg_grads(self):
        self.average_tensor(self.ipg_buffer[self.ipg_index].narrow(0, 0, self.elements_in_ipg_bucket))
        self.elements_in_ipg_bucket, self.params_in_ipg_bucket = 0, []
        self.ipg_index = (self.ipg_index + 1) % len(self.ipg_buffer)

    def reduce_independent_p_g_buckets_and_remove_grads(self, param):
        if self.elements_in_ipg_bucket + param.numel() > self.reduce_bucket_size:
            self.reduce_ipg_grads()
        new_grad = self.ipg_buffer[self.ipg_index].narrow(0, self.elements_in_ipg_bucket, param.numel())
        new_grad.copy_(param.grad.view(-1))
        param.grad = None
        self.params_in_ipg_bucket.append((param, self.elements_in_ipg_bucket))
        self.elements_in_ipg_bucket += param.numel()

    def independent_gradient_partition_epilogue(self):
        self.reduce_ipg_grads()
        get_accelerator().current_stream().wait_stream(self.reduction_stream)
        for param, grad in self.averaged_gradients.items():
            param.grad = grad
        self.averaged_gradients = {}
