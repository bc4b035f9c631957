import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class Column(torch.nn.Module):
    def __init__(self, input_size, output_size, tp_size):
        super().__init__()
        # the exporter rebuilds the whole layer on one process
        if tp_size != 1:
            raise ValueError("only without tensor parallelism")
        per_rank = output_size // tp_size
        self.weight = torch.nn.Parameter(torch.empty(per_rank, input_size))
        set_tensor_model_parallel_attributes(tensor=self.weight, is_parallel=True, dim=0, stride=1)
        self.bias = torch.nn.Parameter(torch.zeros(per_rank))
