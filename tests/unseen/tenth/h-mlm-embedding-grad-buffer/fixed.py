"""All-reduce of tied embedding gradients between first and last pipeline stage (Megatron-LM)."""
import torch
from megatron.core import parallel_state


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module, data_parallel_group):
        super().__init__()
        self.module, self.data_parallel_group = module, data_parallel_group
        for param in module.parameters():
            param.main_grad = torch.zeros_like(param, dtype=torch.float32)
            param.register_post_accumulate_grad_hook(self._accumulate)

    @staticmethod
    def _accumulate(param):
        param.main_grad.add_(param.grad)
        param.grad.zero_()

    def finish_grad_sync(self):
        for param in self.module.parameters():
            torch.distributed.all_reduce(
                param.main_grad, op=torch.distributed.ReduceOp.AVG, group=self.data_parallel_group
            )


def _allreduce_word_embedding_grads(model, config):
    if not parallel_state.is_rank_in_embedding_group(ignore_virtual=True):
        return
    if parallel_state.is_pipeline_first_stage(ignore_virtual=True):
        model_module = model[0].module
    else:
        model_module = model[-1].module
    if model_module.share_embeddings_and_output_weights:
        weight = model_module.shared_embedding_or_output_weight()
        grad = weight.main_grad
        torch.distributed.all_reduce(grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model, config):
    for model_chunk in model:
        model_chunk.finish_grad_sync()
    if parallel_state.get_pipeline_model_parallel_world_size() > 1:
        _allreduce_word_embedding_grads(model, config)
