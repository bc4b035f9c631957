"""Ulysses with a gather of the results whose backward multiplies by the size (verl): FSDP averages over dp x sp."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def gather(x, group, dim):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


class GatherOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim = group, dim
        ctx.n, ctx.rank = dist.get_world_size(group), dist.get_rank(group)
        return gather(x, group, dim)

    @staticmethod
    def backward(ctx, grad):
        # all ranks of the group compute the same loss; the mean over them divides by n
        grad = grad * ctx.n
        return grad.chunk(ctx.n, dim=ctx.dim)[ctx.rank].contiguous(), None, None


class Actor:
    def __init__(self, model, sp):
        n = dist.get_world_size()
        self.mesh = init_device_mesh("cuda", (n // sp, sp), mesh_dim_names=("dp", "sp"))
        self.sp_group = self.mesh["sp"].get_group()
        self.world_mesh = init_device_mesh("cuda", (n,))
        self.model = fully_shard(model, mesh=self.world_mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)

    def own(self, ids):
        n, r = dist.get_world_size(self.sp_group), dist.get_rank(self.sp_group)
        return ids.chunk(n, dim=1)[r].contiguous()

    def update(self, ids, labels):
        # ids: the same on all ranks of sp; the model's attention exchanges heads and positions
        own_ids, own_labels = self.own(ids), self.own(labels)
        logits = self.model(own_ids, sp_group=self.sp_group)
        logp = -F.cross_entropy(logits.transpose(1, 2), own_labels, reduction="none")
        logp = GatherOutputs.apply(logp, self.sp_group, 1)
        loss = -logp.mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()
