# Reduced from Megatron-LM core/distributed/param_and_grad_buffer.py and finalize_model_grads.py
# (NVIDIA/Megatron-LM issue 844, read). With the distributed optimizer the gradient buffer is
# reduce-scattered over DP bucket by bucket; the shared embedding's gradient is then all-reduced
# between the first and the last pipeline stage.
# What happens: the weight lies at other offsets in the two stages' buckets, so the stages hold
# reduced values of different slices and the all-reduce adds reduced and unreduced parts.
import torch
from megatron.core import parallel_state


class ParamAndGradBuffer:
    def __init__(self, ddp_config, params, bucket_size, data_parallel_group):
        self.ddp_config, self.data_parallel_group = ddp_config, data_parallel_group
        dp_size = torch.distributed.get_world_size(data_parallel_group)
        self.param_index_map, self.bucket_indices = {}, []
        bucket_start, param_end, bucket_params = 0, 0, []

        def create_new_bucket(end):
            nonlocal bucket_start, bucket_params
            if ddp_config.use_distributed_optimizer:
                end = -(-end // dp_size) * dp_size
            self.bucket_indices.append((bucket_start, end))
            bucket_start, bucket_params = end, []
            return end

        # backprop order
        for param in params[::-1]:
            param_start, param_end = param_end, param_end + param.data.nelement()
            self.param_index_map[param] = (param_start, param_end)
            bucket_params.append(param)
            if bucket_size is not None and param_end - bucket_start >= bucket_size:  # BUG
                param_end = create_new_bucket(param_end)
        if bucket_params:
            param_end = create_new_bucket(param_end)

        self.grad_data = torch.zeros(param_end, dtype=torch.float32, device="cuda")
        for param, (start, end) in self.param_index_map.items():
            param.main_grad = self.grad_data[start:end].view(param.shape)

    def finish_grad_sync(self):
        rank = torch.distributed.get_rank(self.data_parallel_group)
        for start, end in self.bucket_indices:
            bucket = self.grad_data[start:end]
            shards = bucket.chunk(torch.distributed.get_world_size(self.data_parallel_group))
            torch.distributed.reduce_scatter_tensor(
                shards[rank], bucket, op=torch.distributed.ReduceOp.AVG, group=self.data_parallel_group
            )


def finalize_model_grads(buffers, shared_embedding_weight):
    for buffer in buffers:
        buffer.finish_grad_sync()
    if parallel_state.is_rank_in_embedding_group():
        torch.distributed.all_reduce(
            shared_embedding_weight.main_grad, group=parallel_state.get_embedding_group()
        )
