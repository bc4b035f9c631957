# thread: https://github.com/modelscope/ms-swift/pull/7944
"""Task heads and modality projectors that are added to a Megatron model before fine-tuning."""
import argparse
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core import tensor_parallel
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    get_cuda_rng_tracker,
    reduce_from_tensor_model_parallel_region,
)
from torch import nn


def get_args(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--hidden-size", type=int, default=4096)
    parser.add_argument("--projector-hidden-size", type=int, default=8192)
    parser.add_argument("--vision-hidden-size", type=int, default=1152)
    parser.add_argument("--init-method-std", type=float, default=0.02)
    parser.add_argument("--num-layers", type=int, default=32)
    return parser.parse_args(argv)


def set_random_seed(seed: int):
    """Pipeline stages differ; the default stream is the same on all tensor-parallel ranks."""
    seed = seed + 100 * mpu.get_pipeline_model_parallel_rank()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def init_method_normal(sigma):
    def init_(tensor):
        return nn.init.normal_(tensor, mean=0.0, std=sigma)

    return init_


def scaled_init_method_normal(sigma, num_layers):
    return init_method_normal(sigma / math.sqrt(2.0 * num_layers))


def set_tensor_parallel_attributes(weight, partition_dim):
    weight.tensor_model_parallel = True
    weight.partition_dim = partition_dim
    weight.partition_stride = 1


def initialize_shard(weight, init_method, partition_dim):
    """``weight`` is this rank's part of a matrix that is split along ``partition_dim``."""
    set_tensor_parallel_attributes(weight, partition_dim)
    with get_cuda_rng_tracker().fork():
        init_method(weight)


class ColumnProjection(nn.Module):
    def __init__(self, in_features, out_features, init_method):
        super().__init__()
        local = out_features // mpu.get_tensor_model_parallel_world_size()
        self.weight = nn.Parameter(torch.empty(local, in_features, device="cuda"))
        self.bias = nn.Parameter(torch.zeros(local, device="cuda"))
        initialize_shard(self.weight, init_method, partition_dim=0)
        set_tensor_parallel_attributes(self.bias, 0)

    def forward(self, x):
        return F.linear(copy_to_tensor_model_parallel_region(x), self.weight, self.bias)


class RowProjection(nn.Module):
    def __init__(self, in_features, out_features, init_method):
        super().__init__()
        local = in_features // mpu.get_tensor_model_parallel_world_size()
        self.weight = nn.Parameter(torch.empty(out_features, local, device="cuda"))
        self.bias = nn.Parameter(torch.zeros(out_features, device="cuda"))
        initialize_shard(self.weight, init_method, partition_dim=1)

    def forward(self, x):
        return reduce_from_tensor_model_parallel_region(F.linear(x, self.weight)) + self.bias


class VisionProjector(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.norm = nn.LayerNorm(args.vision_hidden_size, device="cuda")
        self.fc1 = ColumnProjection(
            args.vision_hidden_size, args.projector_hidden_size, init_method_normal(args.init_method_std)
        )
        self.fc2 = RowProjection(
            args.projector_hidden_size,
            args.hidden_size,
            scaled_init_method_normal(args.init_method_std, args.num_layers),
        )

    def forward(self, image_features):
        return self.fc2(F.gelu(self.fc1(self.norm(image_features))))


class RewardHead(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, args.hidden_size, device="cuda"))
        init_method_normal(args.init_method_std)(self.weight)

    def forward(self, hidden_states):
        return F.linear(hidden_states, self.weight)


def extend_model(model, args):
    set_random_seed(args.seed)
    if mpu.is_pipeline_first_stage():
        model.vision_projector = VisionProjector(args)
    if mpu.is_pipeline_last_stage():
        model.output_layer = RewardHead(args)
    return model
