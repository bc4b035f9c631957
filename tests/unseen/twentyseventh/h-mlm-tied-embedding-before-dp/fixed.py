"""Gradient finalisation with a distributed optimizer and a tied embedding over pipeline stages."""
import torch
from megatron.core import parallel_state


class DistributedDataParallel(torch.nn.Module):
    """Gradients live in one flat buffer; each DP rank updates its own part of the parameters."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.dp_group = parallel_state.get_data_parallel_group()
        params = [p for p in module.parameters() if p.requires_grad]
        numel, dp = sum(p.numel() for p in params), self.dp_group.size()
        self.grad_data = torch.zeros((numel + dp - 1) // dp * dp, device="cuda")
        offset = 0
        for p in params:
            p.main_grad = self.grad_data[offset:offset + p.numel()].view_as(p)
            offset += p.numel()

    def finish_grad_sync(self):
        shard = self.grad_data.chunk(self.dp_group.size())[self.dp_group.rank()]
        self.grad_data.div_(self.dp_group.size())
        torch.distributed.reduce_scatter_tensor(shard, self.grad_data, group=self.dp_group)


def allreduce_embedding_grads(model):
    # first stage: input embedding, last stage: output projection with the same values
    if parallel_state.is_rank_in_embedding_group():
        weight = model.module.shared_embedding_or_output_weight()
        torch.distributed.all_reduce(weight.main_grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model):
    allreduce_embedding_grads(model)
    model.finish_grad_sync()
