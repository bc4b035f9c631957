"""gpt-oss expert with tensor-parallel weights and a replicated output bias."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate


class ScaleBiasForward(torch.autograd.Function):
    """bias / tp in forward; each rank already receives the full gradient in backward."""

    @staticmethod
    def forward(ctx, bias, tp_degree):
        return bias / tp_degree

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GptOssExpert(torch.nn.Module):
    def __init__(self, w1_shard, b1_shard, w2_shard, b2, tp_mesh):
        super().__init__()
        self.w1, self.b1 = torch.nn.Parameter(w1_shard), torch.nn.Parameter(b1_shard)  # [hidden/tp, dim]
        self.w2, self.b2 = torch.nn.Parameter(w2_shard), torch.nn.Parameter(b2)  # [dim, hidden/tp], [dim]
        self.tp_mesh = tp_mesh

    def forward(self, x: DTensor):
        x = x.to_local(grad_placements=(Partial(),))  # Replicate on tp
        h = F.silu(F.linear(x, self.w1, self.b1))
        out = F.linear(h, self.w2)
        out = out + self.b2  # BUG: the sum over tp counts it tp times
        out = DTensor.from_local(out, self.tp_mesh, (Partial(),), run_check=False)
        return out.redistribute(placements=(Replicate(),))
