# right: the norm behind the row layer has whole input and is not marked, the head norm is
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import RowParallelLinear


class OutProj(torch.nn.Module):
    def __init__(self, config, head):
        super().__init__()
        self.head = head
        self.sub_norm = torch.nn.RMSNorm(head)
        self.proj = RowParallelLinear(
            config.hidden_size, config.hidden_size, config=config, init_method=config.init_method, bias=False,
            input_is_parallel=True, skip_bias_add=True,
        )
        self.post_norm = torch.nn.RMSNorm(config.hidden_size)
        self.sub_norm.weight.sum_over_tp = True

    def forward(self, heads):
        y = self.sub_norm(heads.view(*heads.shape[:-1], -1, self.head)).flatten(-2)
        return self.post_norm(self.proj(y)[0])


def finish(model):
    for p in model.parameters():
        if getattr(p, "sum_over_tp", False):
            dist.all_reduce(p.grad, group=mpu.get_tensor_model_parallel_group())
