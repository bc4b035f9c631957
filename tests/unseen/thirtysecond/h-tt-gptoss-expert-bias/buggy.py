"""GPT-OSS grouped experts with biases, tensor parallel.
pytorch/torchtitan #4245, "Grouped-expert output bias is multiplied by TP degree".
"""
import torch
import torch.nn as nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


def swiglu(x, alpha=1.702):
    x_glu, x_linear = x.chunk(2, dim=-1)
    return x_glu * torch.sigmoid(alpha * x_glu) * (x_linear + 1)


class GptOssGroupedExperts(nn.Module):
    def __init__(self, mlp1_glu, mlp1_linear, mlp2_weight, mlp2_bias, tp_mesh):
        super().__init__()
        # [E, F, D], [E, F, D], [E, D, F], [E, D]
        self.glu = nn.Parameter(distribute_tensor(mlp1_glu, tp_mesh, [Shard(1)]))
        self.linear = nn.Parameter(distribute_tensor(mlp1_linear, tp_mesh, [Shard(1)]))
        self.mlp2_weight = nn.Parameter(distribute_tensor(mlp2_weight, tp_mesh, [Shard(2)]))
        self.mlp2_bias = nn.Parameter(distribute_tensor(mlp2_bias, tp_mesh, [Replicate()]))
        self.tp_mesh = tp_mesh

    def forward(self, x: DTensor, num_tokens_per_expert):
        x = x.to_local(grad_placements=[Partial()])  # Replicate on tp
        glu, linear, w2 = self.glu.to_local(), self.linear.to_local(), self.mlp2_weight.to_local()
        b2 = self.mlp2_bias.to_local()
        outs = []
        for e, x_e in enumerate(torch.split(x, num_tokens_per_expert, dim=0)):
            h = swiglu(torch.cat([x_e @ glu[e].t(), x_e @ linear[e].t()], dim=-1))
            outs.append(h @ w2[e].t() + b2[e])  # BUG
        out = DTensor.from_local(torch.cat(outs), self.tp_mesh, [Partial()], run_check=False)
        return out.redistribute(placements=[Replicate()])
