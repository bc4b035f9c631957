# thread: https://github.com/NVIDIA/Megatron-LM/pull/7228
"""Gradient statistics of a fully sharded optimizer whose model is split over pipeline stages."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate


def param_is_not_shared(param) -> bool:
    return not getattr(param, "shared", False)


def count_replication(tensor) -> int:
    """Number of ranks of the mesh that hold the same elements."""
    if not isinstance(tensor, DTensor):
        return 1
    n = 1
    for dim, placement in enumerate(tensor.placements):
        if isinstance(placement, Replicate):
            n *= tensor.device_mesh.size(dim)
    return n


class LanguageModule(nn.Module):
    """One pipeline stage: the first holds the embedding, the last a copy of it as output layer."""

    def __init__(self, vocab_size, hidden, layers, pre_process, post_process, embedding_group):
        super().__init__()
        self.pre_process, self.post_process = pre_process, post_process
        self.embedding_group = embedding_group
        self.layers = nn.ModuleList(layers)
        if pre_process:
            self.word_embeddings = nn.Embedding(vocab_size, hidden)
        elif post_process:
            self.output_weight = nn.Parameter(torch.zeros(vocab_size, hidden))

    def shared_embedding_or_output_weight(self):
        if self.pre_process:
            return self.word_embeddings.weight
        return self.output_weight if self.post_process else None

    def setup_embeddings_and_output_layer(self):
        weight = self.shared_embedding_or_output_weight()
        if weight is None or self.pre_process and self.post_process:
            return
        if self.post_process:
            weight.shared = True
        dist.all_reduce(weight.data, group=self.embedding_group)

    def forward(self, x):
        h = self.word_embeddings(x) if self.pre_process else x
        for layer in self.layers:
            h = layer(h)
        if self.post_process:
            h = nn.functional.linear(h, self.shared_embedding_or_output_weight())
        return h


def allreduce_embedding_grad(model: LanguageModule):
    weight = model.shared_embedding_or_output_weight()
    if weight is None or weight.grad is None or model.pre_process and model.post_process:
        return
    grad = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad
    dist.all_reduce(grad, group=model.embedding_group)


class FullyShardedOptimizer:
    def __init__(self, optimizer, config, grad_stats_group):
        self.optimizer = optimizer
        self.config = config
        self.grad_stats_group = grad_stats_group  # all ranks of the model, every pipeline stage

    def get_parameters(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def get_grad_norm(self):
        total = torch.zeros((), device=torch.cuda.current_device())
        for param in self.get_parameters():
            if param.grad is None or not param_is_not_shared(param):
                continue
            grad = param.grad
            local = grad.to_local() if isinstance(grad, DTensor) else grad
            total += local.float().pow(2).sum() / count_replication(grad)
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.grad_stats_group)
        return total.sqrt()

    @torch.no_grad()
    def clip_grad_norm(self, max_norm):
        norm = self.get_grad_norm()
        coeff = (max_norm / (norm + 1.0e-6)).clamp(max=1.0)
        for param in self.get_parameters():
            if param.grad is not None:
                param.grad.mul_(coeff)
        return norm

    def step(self):
        norm = self.clip_grad_norm(self.config.clip_grad) if self.config.clip_grad > 0.0 else None
        self.optimizer.step()
        return True, norm


def train_step(schedule, model: LanguageModule, optimizer: FullyShardedOptimizer, data_iterator):
    optimizer.optimizer.zero_grad()
    losses = schedule(model, data_iterator)
    allreduce_embedding_grad(model)
    ok, grad_norm = optimizer.step()
    return losses, ok, grad_norm
