"""Multi-query attention and the distributed optimizer (bigcode-project/Megatron-LM#11)."""
import torch.distributed as dist
from megatron.core import parallel_state


class MegatronOptimizer:
    def __init__(self, models):
        self.models = models

    def allreduce_key_value_grads(self):
        # key_value is replicated over TP, the query heads are sharded
        for model in self.models:
            for layer in model.layers:
                for p in layer.self_attention.key_value.parameters():
                    dist.all_reduce(p.main_grad, group=parallel_state.get_tensor_model_parallel_group())

    def reduce_model_grads(self):
        self.allreduce_key_value_grads()
        for model in self.models:
            model.allreduce_gradients()


class DistributedOptimizer(MegatronOptimizer):
    def reduce_model_grads(self):  # BUG: the key_value gradients stay partial over TP
        group = parallel_state.get_data_parallel_group()
        for model in self.models:
            for buf in model.grad_buffers:
                buf.data /= group.size()
                shard = buf.data.chunk(group.size())[group.rank()]
                dist.reduce_scatter_tensor(shard, buf.data, group=group)
