# torchtitan ec30db9d0 (PR #4245): the replicated output bias of the GPT-OSS grouped experts is added on
# every TP rank before the row-parallel reduction, so it is multiplied by the TP degree.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate


class ScaleBiasForward(torch.autograd.Function):
    """Scales the bias in forward; each TP rank's bias still gets the whole gradient."""

    @staticmethod
    def forward(ctx, bias, tp_degree):
        return bias / tp_degree

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GptOssGroupedExperts(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, num_experts: int, tp_mesh: DeviceMesh):
        super().__init__()
        self.tp_mesh = tp_mesh
        local_hidden = hidden_dim // tp_mesh.size()
        # Shards of this TP rank: column parallel, then row parallel. mlp2_bias is replicated.
        self.mlp1_weight_EDF = nn.Parameter(torch.empty(num_experts, dim, local_hidden))
        self.mlp1_bias_EF = nn.Parameter(torch.empty(num_experts, local_hidden))
        self.mlp2_weight_EFD = nn.Parameter(torch.empty(num_experts, local_hidden, dim))
        self.mlp2_bias_ED = nn.Parameter(torch.empty(num_experts, dim))

    def forward(self, x_ECD: DTensor) -> DTensor:
        # x_ECD: Replicate on the TP mesh
        x = x_ECD.to_local(grad_placements=(Partial(),))
        h = F.silu(torch.bmm(x, self.mlp1_weight_EDF) + self.mlp1_bias_EF.unsqueeze(1))
        bias = ScaleBiasForward.apply(self.mlp2_bias_ED, self.tp_mesh.size())
        out = torch.bmm(h, self.mlp2_weight_EFD) + bias.unsqueeze(1)
        out = DTensor.from_local(out, self.tp_mesh, (Partial(),), run_check=False)
        return out.redistribute(placements=(Replicate(),))
