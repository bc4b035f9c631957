import torch
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class Experts(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = nn.Parameter(up), nn.Parameter(down)

    def forward(self, x):
        # x: this rank's tokens; the backward of the gather sums the gradients
        x = torch.cat(all_gather(x, group=self.up.device_mesh.get_group()), dim=1)
        return torch.bmm(torch.relu(torch.bmm(x, self.up.to_local())), self.down.to_local())


class ExpertStyle(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, mesh):
        assert inputs[0].placements == (Shard(1),)
        return inputs[0].to_local()

    def _partition_fn(self, name, mod, mesh):
        mod.up = nn.Parameter(distribute_tensor(mod.up, mesh, [Shard(2)]))
        mod.down = nn.Parameter(distribute_tensor(mod.down, mesh, [Shard(1)]))

    def _prepare_output_fn(self, mod, outputs, mesh):
        return DTensor.from_local(outputs, mesh, (Partial(),), run_check=False).redistribute(placements=(Shard(1),))
