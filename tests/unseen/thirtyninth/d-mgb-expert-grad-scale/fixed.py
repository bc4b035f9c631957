"""Expert MLP with one slice of the experts on each data-parallel rank."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class ParallelMLP(nn.Module):
    """tokens arrive as [experts, capacity, hidden]; experts are split over the world."""

    def __init__(self, num_experts, hidden_size, ffn_hidden_size):
        super().__init__()
        self.world = dist.get_world_size()
        self.num_local = num_experts // self.world
        self.w1 = nn.Parameter(torch.empty(self.num_local, hidden_size, ffn_hidden_size))
        self.w2 = nn.Parameter(torch.empty(self.num_local, ffn_hidden_size, hidden_size))
        nn.init.normal_(self.w1, std=0.02)
        nn.init.normal_(self.w2, std=0.02)

    def exchange(self, x):
        x = x.contiguous()
        return dist_nn.all_to_all_single(torch.empty_like(x), x)

    def forward(self, tokens):
        experts, capacity, hidden = tokens.shape
        x = self.exchange(tokens).view(self.world, self.num_local, capacity, hidden)
        x = x.transpose(0, 1).reshape(self.num_local, self.world * capacity, hidden)
        w1 = ScaleGradient.apply(self.w1, 1.0 / self.world)
        w2 = ScaleGradient.apply(self.w2, 1.0 / self.world)
        x = F.gelu(torch.bmm(x, w1), approximate="tanh")
        x = torch.bmm(x, w2)
        x = x.view(self.num_local, self.world, capacity, hidden).transpose(0, 1)
        return self.exchange(x.reshape(experts, capacity, hidden))


def wrap(model, device):
    experts = [
        f"{prefix}.{name}"
        for prefix, m in model.named_modules()
        if isinstance(m, ParallelMLP)
        for name, _ in m.named_parameters()
    ]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, experts)
    return DistributedDataParallel(model, device_ids=[device])


def train_step(ddp, optimizer, batch, loss_fn):
    loss = loss_fn(ddp(batch["input"]), batch["target"])  # mean over this rank's tokens
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
