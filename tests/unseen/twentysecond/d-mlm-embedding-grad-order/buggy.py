"""Shared embedding and the distributed optimizer (NVIDIA/Megatron-LM#844)."""
import torch
from megatron.core import parallel_state


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module, grad_data):
        super().__init__()
        self.module, self.grad_data = module, grad_data  # every main_grad is a view of grad_data

    def finish_grad_sync(self):
        group = parallel_state.get_data_parallel_group()
        self.grad_data.mul_(1.0 / group.size())
        shard = self.grad_data.chunk(group.size())[group.rank()]
        torch.distributed.reduce_scatter_tensor(shard, self.grad_data, group=group)


def allreduce_word_embedding_grads(model):
    # first and last stage hold a copy, at different places of their buffers
    if parallel_state.is_rank_in_embedding_group():
        grad = model.module.shared_embedding_or_output_weight().main_grad
        torch.distributed.all_reduce(grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model):
    model.finish_grad_sync()
    allreduce_word_embedding_grads(model)  # BUG: after the reduce-scatter, reduced and local values are added
