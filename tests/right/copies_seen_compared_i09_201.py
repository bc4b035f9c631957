# right: the copies are gathered to see whether they agree; gradients do not matter
import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


class Watch(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block
        self.diff = None

    def forward(self, x):
        y = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        if self.training:
            self.watch(y.detach())
        return self.block(y)

    def watch(self, y):
        h = y.float().sum()
        all_h = [torch.zeros_like(h) for _ in range(ps.get_tensor_model_parallel_world_size())]
        dist.all_gather(all_h, h, group=ps.get_tensor_model_parallel_group())
        self.diff = torch.stack(all_h).std()
