"""A layer with modes, whose marks follow the mode."""
import torch
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes


class Linear(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_size, parallel_mode=None):
        super().__init__()
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.parallel_mode = parallel_mode
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        set_tensor_model_parallel_attributes(self.weight, parallel_mode is not None, 0, 1)


class Guarded(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_size, parallel_mode=None):
        super().__init__()
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        if parallel_mode in ("column", "row"):
            set_tensor_model_parallel_attributes(self.weight, True, 0, 1)


class TwoModes(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_size, parallel_mode="column"):
        super().__init__()
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        set_tensor_model_parallel_attributes(self.weight, True, 1 if parallel_mode == "row" else 0, 1)


class Refused(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_size, parallel_mode=None):
        super().__init__()
        if parallel_mode is None:
            raise ValueError("column or row")
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        set_tensor_model_parallel_attributes(self.weight, True, 0, 1)
