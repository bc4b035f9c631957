"""Gradient finalisation: flat data-parallel buffer, tied embedding, sharded optimizer."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class GradBuffer:
    """One contiguous buffer; after the reduction a rank owns one equal slice of it."""

    def __init__(self, params, group, device):
        self.group = group
        self.size = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        numel = sum(p.numel() for p in params)
        padded = (numel + self.size - 1) // self.size * self.size
        self.grad_data = torch.zeros(padded, dtype=torch.float32, device=device)
        offset = 0
        self.ranges = {}
        for p in params:
            p.main_grad = self.grad_data[offset : offset + p.numel()].view(p.shape)
            self.ranges[p] = (offset, offset + p.numel())
            offset += p.numel()

    def zero(self):
        self.grad_data.zero_()

    def local_slice(self):
        length = self.grad_data.numel() // self.size
        return self.grad_data[self.rank * length : (self.rank + 1) * length]

    def reduce_scatter(self):
        self.grad_data /= self.size
        dist.reduce_scatter_tensor(self.local_slice(), self.grad_data, group=self.group)

    def gather_params(self, param_data):
        length = param_data.numel() // self.size
        local = param_data[self.rank * length : (self.rank + 1) * length]
        dist.all_gather_into_tensor(param_data, local.clone(), group=self.group)


def register_grad_accumulation(params):
    def make_hook(p):
        def hook(*_):
            p.main_grad.add_(p.grad)
            p.grad = None

        return hook

    for p in params:
        p.register_post_accumulate_grad_hook(make_hook(p))


def _allreduce_word_embedding_grads(model, config):
    """First and last stage each hold a copy of the word embedding."""
    if parallel_state.get_pipeline_model_parallel_world_size() == 1:
        return
    if not config.share_embeddings_and_output_weights:
        return
    if parallel_state.is_rank_in_embedding_group():
        weight = model.shared_embedding_or_output_weight()
        dist.all_reduce(weight.main_grad, group=parallel_state.get_embedding_group())


def _allreduce_layernorm_grads(model, config):
    if not config.sequence_parallel or config.tensor_model_parallel_size == 1:
        return
    grads = [p.main_grad for p in model.parameters() if getattr(p, "sequence_parallel", False)]
    if grads:
        flat = torch._utils._flatten_dense_tensors(grads)
        dist.all_reduce(flat, group=parallel_state.get_tensor_model_parallel_group())
        for grad, synced in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
            grad.copy_(synced)


def finalize_model_grads(model, buffer, config):
    _allreduce_layernorm_grads(model, config)
    buffer.reduce_scatter()
    _allreduce_word_embedding_grads(model, config)  # BUG


def train_step(forward_backward_func, forward_step, data_iterator, model, buffer, optimizer, config):
    buffer.zero()
    losses = forward_backward_func(
        forward_step_func=forward_step,
        data_iterator=data_iterator,
        model=model,
        num_microbatches=config.num_microbatches,
        seq_length=config.seq_length,
        micro_batch_size=config.micro_batch_size,
    )
    finalize_model_grads(model, buffer, config)
    optimizer.step(buffer.local_slice())
    buffer.gather_params(optimizer.param_data)
    return losses
