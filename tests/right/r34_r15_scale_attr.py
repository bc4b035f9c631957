import torch.nn as nn
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class Mean(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.scale = 1.0 / config.tensor_model_parallel_size

    def forward(self, x):
        whole = reduce_from_tensor_model_parallel_region(x)
        return reduce_from_tensor_model_parallel_region(whole * self.scale)
