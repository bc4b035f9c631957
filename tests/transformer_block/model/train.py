"""The training loop, and the sums of gradients that the backward pass leaves to it."""

import torch
from megatron.core import parallel_state

from .config import TransformerConfig
from .loss import compute_language_model_loss, loss_func
from .model import GPTModel


def allreduce_layernorm_grads(model: GPTModel, config: TransformerConfig):
    """Sums over the tensor-parallel ranks the gradients of parameters that each rank applied to its own tokens."""
    if not config.sequence_parallel:
        return
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.grad, group=parallel_state.get_tensor_model_parallel_group())


def finalize_model_grads(model: GPTModel, config: TransformerConfig):
    for param in model.parameters():
        param.grad /= parallel_state.get_data_parallel_world_size()
        torch.distributed.all_reduce(param.grad, group=parallel_state.get_data_parallel_group())
    allreduce_layernorm_grads(model, config)


def train_step(config: TransformerConfig, model: GPTModel, optimizer: torch.optim.Optimizer, batch: dict):
    optimizer.zero_grad()
    logits = model(batch["tokens"], batch["attention_mask"])
    losses = compute_language_model_loss(config, batch["labels"], logits)
    loss, averaged_loss = loss_func(batch["loss_mask"], losses)
    loss.backward()
    finalize_model_grads(model, config)
    optimizer.step()
    return averaged_loss


def pretrain(config: TransformerConfig, data_iterator):
    model = GPTModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in data_iterator:
        averaged_loss = train_step(config, model, optimizer, batch)
        print(f"lm loss: {averaged_loss[0].item()}")
