"""Transformer block forward with the sequence parallel rng and the fp8 recipe contexts."""
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from megatron.core import ModelParallelConfig, parallel_state as mpu, tensor_parallel

try:
    import transformer_engine.pytorch as te
    from transformer_engine.common.recipe import DelayedScaling, Format
except ImportError:
    te = None


def init_method(weight):
    return nn.init.normal_(weight, std=0.02)


class MLP(nn.Module):
    def __init__(self, config: ModelParallelConfig, hidden_size: int):
        super().__init__()
        linear = dict(config=config, init_method=init_method, bias=False)
        self.fc1 = tensor_parallel.ColumnParallelLinear(hidden_size, 4 * hidden_size, gather_output=False, **linear)
        self.fc2 = tensor_parallel.RowParallelLinear(
            4 * hidden_size, hidden_size, input_is_parallel=True, skip_bias_add=False, **linear
        )

    def forward(self, hidden):
        hidden, _ = self.fc1(hidden)
        hidden, _ = self.fc2(F.gelu(hidden))
        return hidden


class TransformerLayer(nn.Module):
    def __init__(self, config, hidden_size, hidden_dropout):
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.mlp = MLP(config, hidden_size)
        self.hidden_dropout = hidden_dropout
        for param in self.norm.parameters():
            param.sequence_parallel = config.sequence_parallel

    def forward(self, hidden):
        update = self.mlp(self.norm(hidden))
        return hidden + F.dropout(update, self.hidden_dropout, training=self.training)


class TransformerBlock(nn.Module):
    def __init__(self, config, hidden_size, num_layers, hidden_dropout=0.1, fp8=None):
        super().__init__()
        self.config, self.fp8 = config, fp8
        self.layers = nn.ModuleList(TransformerLayer(config, hidden_size, hidden_dropout) for _ in range(num_layers))

    def _fp8_context(self):
        if self.fp8 is None:
            return nullcontext()
        fp8_format = Format.E4M3 if self.fp8 == "e4m3" else Format.HYBRID
        recipe = DelayedScaling(fp8_format=fp8_format, amax_history_len=16, amax_compute_algo="max")
        return te.fp8_autocast(
            enabled=True, fp8_recipe=recipe, fp8_group=mpu.get_amax_reduction_group()
        )

    def forward(self, hidden_states):
        # hidden_states: [s / tp, b, h] with sequence parallelism, [s, b, h] otherwise
        if self.config.sequence_parallel:
            rng_context = tensor_parallel.get_cuda_rng_tracker().fork()
        else:
            rng_context = nullcontext()
        fp8_context = self._fp8_context()

        with rng_context and fp8_context:  # BUG
            for layer in self.layers:
                hidden_states = layer(hidden_states)
        return hidden_states


class GPTModel(nn.Module):
    def __init__(self, config, vocab_size, hidden_size, num_layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.decoder = TransformerBlock(config, hidden_size, num_layers)
        self.final_norm = nn.LayerNorm(hidden_size)
        self.output_layer = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, tokens):
        hidden = self.embedding(tokens).transpose(0, 1).contiguous()
        hidden = tensor_parallel.scatter_to_sequence_parallel_region(hidden)
        hidden = self.decoder(hidden)
        hidden = tensor_parallel.gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=False)
        return self.output_layer(self.final_norm(hidden)).transpose(0, 1)


def finalize_model_grads(model):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, group=mpu.get_tensor_model_parallel_group())
        param.grad.div_(mpu.get_data_parallel_world_size())
        dist.all_reduce(param.grad, group=mpu.get_data_parallel_group())


def main(vocab_size=32000, hidden_size=1024, num_layers=4, seq_length=1024, iters=20, seed=1234):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    tp_size = 2
    mpu.initialize_model_parallel(tensor_model_parallel_size=tp_size)
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)
    config = ModelParallelConfig(tensor_model_parallel_size=tp_size, sequence_parallel=True)
    with torch.device("cuda"):
        model = GPTModel(config, vocab_size, hidden_size, num_layers)
    # replicas start equal, their dropout masks should not be
    dp_rank = mpu.get_data_parallel_rank()
    tensor_parallel.model_parallel_cuda_manual_seed(seed + 10 * (1 + dp_rank))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    generator = torch.Generator().manual_seed(seed + dp_rank)
    for iteration in range(iters):
        batch = torch.randint(vocab_size, (2, seq_length + 1), generator=generator).cuda()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        finalize_model_grads(model)
        optimizer.step()
        reported = loss.detach().clone()
        dist.all_reduce(reported, op=dist.ReduceOp.AVG, group=mpu.get_data_parallel_group())
        if dist.get_rank() == 0:
            print(f"iteration {iteration} loss {reported.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
