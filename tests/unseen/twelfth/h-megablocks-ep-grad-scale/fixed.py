"""Expert MLP under expert parallelism; the experts are spread over the data parallel group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

from megablocks.layers import common, mpu
from megablocks.layers.all_to_all import all_to_all


class ScaleGradient(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


scale_gradient = ScaleGradient.apply


class MLP(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        experts_per_rank = mpu.experts_per_rank(args)
        shape = (experts_per_rank, args.hidden_size, mpu.features_per_rank(args))
        self.w1 = torch.nn.Parameter(torch.empty(*shape, device=args.device, dtype=common.dtype(args)))
        self.w2 = torch.nn.Parameter(torch.empty(shape[0], shape[2], shape[1], device=args.device,
                                                 dtype=common.dtype(args)))
        mpu.set_expert_model_parallel_attributes(self.w1, args.moe_expert_model_parallelism)
        mpu.set_expert_model_parallel_attributes(self.w2, args.moe_expert_model_parallelism)

        self.gradient_scale = None
        if self.args.moe_expert_model_parallelism:
            self.gradient_scale = 1 / mpu.get_expert_parallel_world_size(self.args)

    def scale_grad(self, w):
        if self.gradient_scale is None:
            return w
        return scale_gradient(w, self.gradient_scale)

    def forward(self, x):
        return torch.bmm(
            F.gelu(torch.bmm(x, self.scale_grad(self.w1)), approximate="tanh"), self.scale_grad(self.w2))


class ParallelMLP(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args, self.mlp = args, MLP(args)

    def forward(self, x, recv_counts, send_counts, bin_tokens, unbin_tokens):
        # tokens of every rank of the group visit the local experts
        x, _ = all_to_all(x, recv_counts, send_counts, self.args.expert_parallel_group)
        x = unbin_tokens(self.mlp(bin_tokens(x)))
        x, _ = all_to_all(x, send_counts, recv_counts, self.args.expert_parallel_group)
        return x


def train_step(model, batch, loss_fn, optimizer, data_parallel_group):
    loss_fn(model(batch["tokens"]), batch["labels"]).backward()  # mean over the tokens of this rank
    for p in model.parameters():
        if getattr(p, "expert_model_parallel", False):
            continue  # each rank has its own experts
        dist.all_reduce(p.grad, group=data_parallel_group)
        p.grad.div_(dist.get_world_size(data_parallel_group))
    optimizer.step()
