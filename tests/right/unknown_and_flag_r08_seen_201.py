import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear


class Att(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.qkv = ColumnParallelLinear(c.h, 3 * c.h, config=c, init_method=c.init, gather_output=False, bias=False)
        self.o = RowParallelLinear(c.h, c.h, config=c, init_method=c.init, bias=False, input_is_parallel=True, skip_bias_add=False)

    def forward(self, x, kv=None):
        q, k, v = self.qkv(x)[0].chunk(3, -1)
        if self.c.kv_whole:
            k = M.gather_from_tensor_model_parallel_region(k)
            v = M.gather_from_tensor_model_parallel_region(v)
        if kv is not None and kv.size(0) > 0 and self.c.kv_whole:
            k = M.scatter_to_tensor_model_parallel_region(k)
            v = M.scatter_to_tensor_model_parallel_region(v)
        elif self.c.kv_whole:
            k = M.scatter_to_tensor_model_parallel_region(k)
            v = M.scatter_to_tensor_model_parallel_region(v)
        return self.o(F.scaled_dot_product_attention(q, k, v))[0]
