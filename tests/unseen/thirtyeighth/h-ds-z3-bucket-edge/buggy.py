"""Gradient bucket of ZeRO stage 3 with contiguous gradients."""
# thread: deepspeedai/DeepSpeed#4321
import torch

from deepspeed import comm as dist


class DeepSpeedZeroOptimizer_Stage3:
    def __init__(self, reduce_bucket_size, dp_process_group, communication_data_type, device):
        self.reduce_bucket_size = reduce_bucket_size
        self.dp_process_group = dp_process_group
        self.contiguous_gradients = True
        self.params_in_ipg_bucket = []
        self.elements_in_ipg_bucket = 0
        self.averaged_gradients = {}
        self.__ipg_bucket_flat_buffer = torch.empty(
            reduce_bucket_size, dtype=communication_data_type, device=device
        )

    def reduce_independent_p_g_buckets_and_remove_grads(self, param):
        """Post-backward hook of one parameter."""
        if self.elements_in_ipg_bucket > 0 and (
            self.elements_in_ipg_bucket + param.ds_numel > self.reduce_bucket_size
        ):
            self.__reduce_and_partition_ipg_grads()
        self.__add_grad_to_ipg_bucket(param)

    @torch.no_grad()
    def __add_grad_to_ipg_bucket(self, param):
        # move the gradient to a contiguous buffer
        if self.contiguous_gradients and (
            self.elements_in_ipg_bucket + param.grad.numel() < self.reduce_bucket_size  # BUG: an exact fit stays outside the buffer that is reduced
        ):
            new_grad_tensor = self.__ipg_bucket_flat_buffer.narrow(
                0, self.elements_in_ipg_bucket, param.grad.numel()
            ).view_as(param.grad)
            new_grad_tensor.copy_(param.grad, non_blocking=True)
            param.grad.data = new_grad_tensor
        self.params_in_ipg_bucket.append(param)
        self.elements_in_ipg_bucket += param.grad.numel()

    @torch.no_grad()
    def __reduce_and_partition_ipg_grads(self):
        if not self.params_in_ipg_bucket:
            return
        world = dist.get_world_size(self.dp_process_group)
        if self.contiguous_gradients and self.elements_in_ipg_bucket <= self.reduce_bucket_size:
            grad_bucket = self.__ipg_bucket_flat_buffer.narrow(0, 0, self.elements_in_ipg_bucket)
            grad_bucket.div_(world)
            dist.all_reduce(grad_bucket, group=self.dp_process_group)
        else:
            for param in self.params_in_ipg_bucket:
                param.grad.div_(world)
                dist.all_reduce(param.grad, group=self.dp_process_group)

        rank = dist.get_rank(self.dp_process_group)
        for param in self.params_in_ipg_bucket:
            flat = param.grad.view(-1)
            size = param.partition_numel()
            shard = torch.zeros(size, dtype=flat.dtype, device=flat.device)
            length = max(0, min(size, flat.numel() - rank * size))
            shard[:length].copy_(flat.narrow(0, rank * size, length) if length else flat[:0])
            self.averaged_gradients[param.ds_id] = shard
            param.grad = None
        self.params_in_ipg_bucket.clear()
        self.elements_in_ipg_bucket = 0

    def independent_gradient_partition_epilogue(self):
        self.__reduce_and_partition_ipg_grads()
