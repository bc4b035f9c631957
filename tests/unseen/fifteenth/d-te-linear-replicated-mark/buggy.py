# Reduced from TransformerEngine pytorch/module/linear.py (ROCm/TransformerEngine pull request 715, read).
# parallel_mode=None is what Megatron's "duplicated" linear maps to: the weight is the same on all
# tensor-parallel ranks. Megatron reads `tensor_model_parallel` to decide whether a parameter enters
# the gradient-norm sum on each rank or only on rank 0.
# What happens: replicated weights (e.g. the MLA down projections) are counted tp_size times.
import torch
from transformer_engine.pytorch.distributed import set_tensor_model_parallel_attributes


def divide(numerator, denominator):
    assert numerator % denominator == 0
    return numerator // denominator


class Linear(torch.nn.Module):
    def __init__(
        self,
        in_features,
        out_features,
        tp_size=1,
        parallel_mode=None,
        sequence_parallel=False,
        bias=True,
        params_dtype=torch.bfloat16,
    ):
        super().__init__()
        self.tp_size, self.parallel_mode = tp_size, parallel_mode
        self.sequence_parallel = tp_size > 1 and sequence_parallel
        assert parallel_mode in (None, "row", "column")
        if parallel_mode == "column":
            out_features = divide(out_features, tp_size)
        elif parallel_mode == "row":
            in_features = divide(in_features, tp_size)

        self.weight = torch.nn.Parameter(
            torch.empty(out_features, in_features, dtype=params_dtype, device="cuda")
        )
        self.bias = torch.nn.Parameter(torch.zeros(out_features, dtype=params_dtype, device="cuda")) if bias else None

        set_tensor_model_parallel_attributes(
            tensor=self.weight,
            is_parallel=True,  # BUG
            dim=1 if self.parallel_mode == "row" else 0,
            stride=1,
        )
        if self.bias is not None:
            if self.parallel_mode == "row":
                setattr(self.bias, "sequence_parallel", self.sequence_parallel)
            elif self.parallel_mode == "column":
                set_tensor_model_parallel_attributes(self.bias, True, 0, 1)
