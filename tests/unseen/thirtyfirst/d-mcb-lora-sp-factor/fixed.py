"""LoRA tuner for Megatron-Core row parallel linears (linear_proj / linear_fc2)."""
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from megatron.core import ModelParallelConfig, parallel_state as mpu
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    gather_from_sequence_parallel_region,
    model_parallel_cuda_manual_seed,
    scatter_to_sequence_parallel_region,
)


def base_init(weight):
    return nn.init.normal_(weight, std=0.02)


def kaiming_init(weight):
    return nn.init.kaiming_uniform_(weight, a=math.sqrt(5))


class LoraRowParallelLinear(nn.Module):
    """y = base(x) + scaling * B(A(x)); A follows the base layer, B is a local linear."""

    def __init__(self, base_layer: RowParallelLinear, r: int, lora_alpha: int, config: ModelParallelConfig):
        super().__init__()
        self.base_layer = base_layer
        for param in base_layer.parameters():
            param.requires_grad_(False)
        self.scaling = lora_alpha / r
        self.lora_A = RowParallelLinear(
            base_layer.input_size,
            r,
            config=config,
            init_method=kaiming_init,
            bias=False,
            input_is_parallel=True,
            skip_bias_add=False,
        )
        self.lora_B = nn.Linear(r, base_layer.output_size, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.lora_B.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        result, bias = self.base_layer(x)
        hidden, _ = self.lora_A(x)
        return result + self.lora_B(hidden) * self.scaling, bias


class MLP(nn.Module):
    def __init__(self, config, hidden_size, ffn_size):
        super().__init__()
        linear = dict(config=config, init_method=base_init, bias=False)
        self.linear_fc1 = ColumnParallelLinear(hidden_size, ffn_size, gather_output=False, **linear)
        self.linear_fc2 = RowParallelLinear(
            ffn_size, hidden_size, input_is_parallel=True, skip_bias_add=False, **linear
        )

    def forward(self, hidden):
        hidden, _ = self.linear_fc1(hidden)
        hidden, _ = self.linear_fc2(F.gelu(hidden))
        return hidden


class Backbone(nn.Module):
    def __init__(self, config, hidden_size, ffn_size, num_layers):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_size) for _ in range(num_layers))
        self.mlps = nn.ModuleList(MLP(config, hidden_size, ffn_size) for _ in range(num_layers))

    def forward(self, features):
        hidden = scatter_to_sequence_parallel_region(features)
        for norm, mlp in zip(self.norms, self.mlps):
            hidden = hidden + mlp(norm(hidden))
        return gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=False)


def add_lora(model: Backbone, config, r=8, lora_alpha=32):
    for param in model.parameters():
        param.requires_grad_(False)
    for mlp in model.mlps:
        mlp.linear_fc2 = LoraRowParallelLinear(mlp.linear_fc2, r, lora_alpha, config)
    return model


def reduce_trainable_grads(params):
    tp_group, dp_group = mpu.get_tensor_model_parallel_group(), mpu.get_data_parallel_group()
    for param in params:
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, group=tp_group)
        param.grad.div_(mpu.get_data_parallel_world_size())
        dist.all_reduce(param.grad, group=dp_group)


def export_adapter(model, path):
    """Row shards of lora_A are concatenated over the TP group, lora_B is taken from the first rank."""
    group, size = mpu.get_tensor_model_parallel_group(), mpu.get_tensor_model_parallel_world_size()
    state = {}
    for index, mlp in enumerate(model.mlps):
        shard = mlp.linear_fc2.lora_A.weight.detach().contiguous()
        shards = [torch.empty_like(shard) for _ in range(size)]
        dist.all_gather(shards, shard, group=group)
        state[f"layers.{index}.linear_fc2.lora_A.weight"] = torch.cat(shards, dim=1).cpu()
        state[f"layers.{index}.linear_fc2.lora_B.weight"] = mlp.linear_fc2.lora_B.weight.detach().cpu()
    if dist.get_rank() == 0:
        torch.save(state, path)


def main(seq=256, hidden_size=512, steps=20, seed=7):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mpu.initialize_model_parallel(tensor_model_parallel_size=2)
    torch.manual_seed(seed)
    model_parallel_cuda_manual_seed(seed)
    config = ModelParallelConfig(tensor_model_parallel_size=2, sequence_parallel=True)
    with torch.device("cuda"):
        model = add_lora(Backbone(config, hidden_size, 4 * hidden_size, num_layers=4), config)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-4, weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed + mpu.get_data_parallel_rank())
    for step in range(steps):
        features = torch.randn(seq, 4, hidden_size, generator=generator).cuda()
        target = torch.randn(seq, 4, hidden_size, generator=generator).cuda()
        loss = F.mse_loss(model(features), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        reduce_trainable_grads(params)
        optimizer.step()
        reported = loss.detach().clone()
        dist.all_reduce(reported, op=dist.ReduceOp.AVG, group=mpu.get_data_parallel_group())
        if dist.get_rank() == 0:
            print(f"step {step} loss {reported.item():.5f}")
    export_adapter(model, "adapter_model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
