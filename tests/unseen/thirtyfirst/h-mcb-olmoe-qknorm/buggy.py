"""OLMoE attention on top of Megatron-Core: q/k norms run over the full projection width."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from megatron.core import ModelParallelConfig, parallel_state as mpu
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    gather_from_tensor_model_parallel_region,
    model_parallel_cuda_manual_seed,
    scatter_to_sequence_parallel_region,
    scatter_to_tensor_model_parallel_region,
)


def init_method(weight):
    return nn.init.normal_(weight, std=0.02)


class OlmoeAttention(nn.Module):
    def __init__(self, config: ModelParallelConfig, hidden_size: int, num_heads: int):
        super().__init__()
        self.head_dim = hidden_size // num_heads
        linear = dict(config=config, init_method=init_method, bias=False)
        self.linear_q = ColumnParallelLinear(hidden_size, hidden_size, gather_output=False, **linear)
        self.linear_k = ColumnParallelLinear(hidden_size, hidden_size, gather_output=False, **linear)
        self.linear_v = ColumnParallelLinear(hidden_size, hidden_size, gather_output=False, **linear)
        self.linear_proj = RowParallelLinear(
            hidden_size, hidden_size, input_is_parallel=True, skip_bias_add=False, **linear
        )
        self.q_norm = nn.RMSNorm(hidden_size, eps=1e-5)
        self.k_norm = nn.RMSNorm(hidden_size, eps=1e-5)
        for norm in (self.q_norm, self.k_norm):
            for param in norm.parameters():
                param.sequence_parallel = True  # BUG

    def get_query_key_value(self, hidden_states):
        query, _ = self.linear_q(hidden_states)
        key, _ = self.linear_k(hidden_states)
        value, _ = self.linear_v(hidden_states)
        query = self.q_norm(gather_from_tensor_model_parallel_region(query))
        key = self.k_norm(gather_from_tensor_model_parallel_region(key))
        query = scatter_to_tensor_model_parallel_region(query)
        key = scatter_to_tensor_model_parallel_region(key)
        heads = lambda t: t.view(t.size(0), t.size(1), -1, self.head_dim).permute(1, 2, 0, 3)
        return heads(query), heads(key), heads(value)

    def forward(self, hidden_states):
        query, key, value = self.get_query_key_value(hidden_states)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        context = context.permute(2, 0, 1, 3).flatten(2).contiguous()
        output, _ = self.linear_proj(context)
        return output


class OlmoeLayer(nn.Module):
    def __init__(self, config, hidden_size, num_heads, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.input_layernorm = nn.RMSNorm(hidden_size, eps=1e-5)
        self.self_attention = OlmoeAttention(config, hidden_size, num_heads)
        self.output_norm = nn.RMSNorm(hidden_size, eps=1e-5)
        self.output_layer = nn.Linear(hidden_size, vocab_size, bias=False)
        for module in (self.input_layernorm, self.output_norm, self.output_layer):
            for param in module.parameters():
                param.sequence_parallel = True

    def forward(self, tokens):
        hidden = self.embedding(tokens).transpose(0, 1).contiguous()
        hidden = scatter_to_sequence_parallel_region(hidden)
        hidden = hidden + self.self_attention(self.input_layernorm(hidden))
        return self.output_layer(self.output_norm(hidden))


def finalize_model_grads(model):
    grads = [p.grad for p in model.parameters() if getattr(p, "sequence_parallel", False) and p.grad is not None]
    coalesced = _flatten_dense_tensors(grads)
    dist.all_reduce(coalesced, group=mpu.get_tensor_model_parallel_group())
    for grad, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
        grad.copy_(synced)

    dp_size = mpu.get_data_parallel_world_size()
    for param in model.parameters():
        param.grad.div_(dp_size)
        dist.all_reduce(param.grad, group=mpu.get_data_parallel_group())


def train_step(model, optimizer, tokens, labels):
    tp_size = mpu.get_tensor_model_parallel_world_size()
    tp_rank = mpu.get_tensor_model_parallel_rank()
    logits = model(tokens)
    # every rank scores its own part of the sequence
    labels = labels.transpose(0, 1).chunk(tp_size, dim=0)[tp_rank]
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum") / tokens.numel()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    finalize_model_grads(model)
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total, group=mpu.get_tensor_model_parallel_group())
    dist.all_reduce(total, op=dist.ReduceOp.AVG, group=mpu.get_data_parallel_group())
    return total


def main(seq_length=512, vocab_size=50304, hidden_size=1024, num_heads=16, steps=10, seed=42):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mpu.initialize_model_parallel(tensor_model_parallel_size=2)
    torch.manual_seed(seed)
    model_parallel_cuda_manual_seed(seed)
    config = ModelParallelConfig(tensor_model_parallel_size=2, sequence_parallel=True)
    with torch.device("cuda"):
        model = OlmoeLayer(config, hidden_size, num_heads, vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    generator = torch.Generator().manual_seed(seed + mpu.get_data_parallel_rank())
    for step in range(steps):
        batch = torch.randint(vocab_size, (2, seq_length + 1), generator=generator).cuda()
        loss = train_step(model, optimizer, batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
