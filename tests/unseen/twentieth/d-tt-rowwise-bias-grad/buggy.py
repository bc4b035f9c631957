# torchtitan, pull 4332: bias / tp_degree on each rank makes the summed output right, but the gradient of the replicated
# bias must not be divided: each rank gets the full gradient of the output and nothing sums it over tp.
"""Row-parallel linear whose partial outputs, bias included, are summed over tp."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class ScaledBiasRowwiseLinear(torch.nn.Linear):
    """Rowwise linear whose local bias contribution is scaled by TP degree."""

    tp_degree = 1

    def parallelize(self, tp_mesh):
        self.tp_mesh, self.tp_degree = tp_mesh, tp_mesh.size()
        self.weight = torch.nn.Parameter(distribute_tensor(self.weight.data, tp_mesh, [Shard(1)]))
        self.bias = torch.nn.Parameter(distribute_tensor(self.bias.data, tp_mesh, [Replicate()]))

    def forward(self, input: DTensor) -> DTensor:
        # input: Shard(-1) on tp
        weight = self.weight.to_local()
        bias = self.bias.to_local()  # its gradient is taken as replicated
        bias = bias / self.tp_degree  # BUG: autograd divides the gradient of the bias as well
        output = F.linear(input.to_local(), weight, bias)
        output = DTensor.from_local(output, self.tp_mesh, [Partial()], run_check=False)
        return output.redistribute(placements=[Replicate()])
