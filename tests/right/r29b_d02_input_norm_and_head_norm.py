# right: a block's input norm (unmarked, column behind) beside a marked norm of local heads
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear


class QueryKey(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head = config.kv_channels
        size = config.num_attention_heads * self.head
        self.input_norm = torch.nn.LayerNorm(config.hidden_size)
        self.qk = ColumnParallelLinear(config.hidden_size, 2 * size, config=config, init_method=config.init_method)
        self.q_norm = torch.nn.LayerNorm(self.head)
        self.k_norm = torch.nn.LayerNorm(self.head)
        for norm in (self.q_norm, self.k_norm):
            for p in norm.parameters():
                setattr(p, "reduce_over_tp", True)

    def forward(self, x):
        qk, _ = self.qk(self.input_norm(x))
        q, k = qk.view(*qk.shape[:-1], -1, 2 * self.head).chunk(2, dim=-1)
        return self.q_norm(q), self.k_norm(k)


def reduce_marked(model):
    grads = [p.grad for p in model.parameters() if getattr(p, "reduce_over_tp", False)]
    for g in grads:
        dist.all_reduce(g, group=mpu.get_tensor_model_parallel_group())
