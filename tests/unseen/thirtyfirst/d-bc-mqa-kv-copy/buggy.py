"""Multi-query attention for a Megatron style GPT under tensor parallelism.

Query heads are split over the tensor parallel ranks, the single key/value head
is held by every rank.
"""
import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from megatron.core import ModelParallelConfig, parallel_state as mpu, tensor_parallel


class MultiQueryAttention(nn.Module):
    def __init__(self, config: ModelParallelConfig, hidden_size: int, num_heads: int, init_method):
        super().__init__()
        tp_size = mpu.get_tensor_model_parallel_world_size()
        assert num_heads % tp_size == 0
        self.head_dim = hidden_size // num_heads
        self.num_heads_per_partition = num_heads // tp_size
        self.query = tensor_parallel.ColumnParallelLinear(
            hidden_size, hidden_size, config=config, init_method=init_method, bias=False, gather_output=False
        )
        self.key_value = nn.Linear(hidden_size, 2 * self.head_dim, bias=False)
        init_method(self.key_value.weight)
        self.dense = tensor_parallel.RowParallelLinear(
            hidden_size,
            hidden_size,
            config=config,
            init_method=init_method,
            bias=False,
            input_is_parallel=True,
            skip_bias_add=False,
        )

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        # hidden_states: [sq, b, h], identical on every tensor parallel rank
        sq, b, _ = hidden_states.shape
        query, _ = self.query(hidden_states)
        key_value = self.key_value(hidden_states)  # BUG
        key, value = key_value.split(self.head_dim, dim=-1)

        # [sq, b, np * hn] -> [b, np * sq, hn]
        query = query.view(sq, b, self.num_heads_per_partition, self.head_dim)
        query = query.permute(1, 2, 0, 3).reshape(b, self.num_heads_per_partition * sq, self.head_dim)
        scores = torch.bmm(query, key.permute(1, 2, 0)) / math.sqrt(self.head_dim)
        scores = scores.view(b, self.num_heads_per_partition, sq, sq)
        causal = torch.ones(sq, sq, dtype=torch.bool, device=scores.device).tril()
        probs = scores.masked_fill(~causal, float("-inf")).softmax(dim=-1)

        context = torch.bmm(probs.view(b, self.num_heads_per_partition * sq, sq), value.transpose(0, 1))
        context = context.view(b, self.num_heads_per_partition, sq, self.head_dim)
        context = context.permute(2, 0, 1, 3).reshape(sq, b, -1)
        output, _ = self.dense(context)
        return output


class GPTBlock(nn.Module):
    def __init__(self, config, hidden_size, num_heads, vocab_size, init_method):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.input_norm = nn.LayerNorm(hidden_size)
        self.attention = MultiQueryAttention(config, hidden_size, num_heads, init_method)
        self.final_norm = nn.LayerNorm(hidden_size)
        self.head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, tokens):
        hidden = self.embedding(tokens).transpose(0, 1).contiguous()
        hidden = hidden + self.attention(self.input_norm(hidden))
        return self.head(self.final_norm(hidden)).transpose(0, 1)


def allreduce_data_parallel_grads(model: nn.Module) -> None:
    group = mpu.get_data_parallel_group()
    for param in model.parameters():
        if param.grad is not None:
            param.grad.div_(mpu.get_data_parallel_world_size())
            dist.all_reduce(param.grad, group=group)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-model-parallel-size", type=int, default=2)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--num-attention-heads", type=int, default=8)
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--seq-length", type=int, default=256)
    parser.add_argument("--train-iters", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    mpu.initialize_model_parallel(args.tensor_model_parallel_size)
    torch.manual_seed(args.seed)
    tensor_parallel.model_parallel_cuda_manual_seed(args.seed)

    config = ModelParallelConfig(tensor_model_parallel_size=args.tensor_model_parallel_size)
    init_method = lambda w: nn.init.normal_(w, mean=0.0, std=0.02)
    with torch.device("cuda"):
        model = GPTBlock(config, args.hidden_size, args.num_attention_heads, args.vocab_size, init_method)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    generator = torch.Generator().manual_seed(args.seed + mpu.get_data_parallel_rank())
    for iteration in range(args.train_iters):
        batch = torch.randint(args.vocab_size, (4, args.seq_length + 1), generator=generator).cuda()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        allreduce_data_parallel_grads(model)
        optimizer.step()

        reported = loss.detach().clone()
        dist.all_reduce(reported, op=dist.ReduceOp.AVG, group=mpu.get_data_parallel_group())
        if dist.get_rank() == 0:
            print(f"iteration {iteration} | lm loss {reported.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
