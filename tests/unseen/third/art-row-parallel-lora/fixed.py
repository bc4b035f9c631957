"""LoRA wrappers for the parallel linears of a Megatron policy."""
# Source: OpenPipe/ART pull request 619 (thread; code from memory)
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class LoRA(torch.nn.Module):
    def __init__(self, in_features, out_features, rank, alpha):
        super().__init__()
        self.scale = alpha / rank
        self.A_T = torch.nn.Parameter(torch.empty(in_features, rank))
        self.B_T = torch.nn.Parameter(torch.zeros(rank, out_features))
        torch.nn.init.kaiming_uniform_(self.A_T, a=5**0.5)

    def forward(self, x):
        return (x @ self.A_T) @ self.B_T * self.scale


class SelfAttentionLinearProjLoRA(torch.nn.Module):
    """Row parallel: the input features are sharded, the output is whole."""

    def __init__(self, linear_proj, rank, alpha):
        super().__init__()
        self.linear_proj = linear_proj
        out_features, in_local = linear_proj.weight.shape
        self.lora = LoRA(in_local, out_features, rank, alpha)
        self.lora.A_T.tensor_model_parallel = True

    def forward(self, x):
        # x: [s, b, h/tp]
        base = reduce_from_tensor_model_parallel_region(F.linear(x, self.linear_proj.weight))
        mid = reduce_from_tensor_model_parallel_region(x @ self.lora.A_T)
        return base + mid @ self.lora.B_T * self.lora.scale, None


class MLPLinearFC1LoRA(torch.nn.Module):
    """Column parallel: the input is whole, the output features are sharded."""

    def __init__(self, linear_fc1, rank, alpha):
        super().__init__()
        self.linear_fc1 = linear_fc1
        out_local, in_features = linear_fc1.weight.shape
        self.lora = LoRA(in_features, out_local, rank, alpha)
        self.lora.B_T.tensor_model_parallel = True

    def forward(self, x):
        # x: [s, b, h]
        base = F.linear(copy_to_tensor_model_parallel_region(x), self.linear_fc1.weight)
        mid = copy_to_tensor_model_parallel_region(x @ self.lora.A_T)
        return base + mid @ self.lora.B_T * self.lora.scale, None
