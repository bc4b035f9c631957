# megablocks, pull 20: with expert model parallelism the weight gradient of an expert sums the tokens of all ranks
# (all_to_all) and is not averaged afterwards; it has to be scaled by 1 / world_size like the other gradients are.
"""Expert MLP with expert model parallelism over the data-parallel ranks, one expert on each."""
import torch
import torch.nn.functional as F
from megablocks.layers import mpu
from megablocks.layers.all_to_all import all_to_all


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class MLP(torch.nn.Module):
    def __init__(self, args, w1, w2):
        super().__init__()
        self.w1, self.w2 = torch.nn.Parameter(w1), torch.nn.Parameter(w2)  # (1, ...): the expert of this rank
        mpu.set_expert_model_parallel_attributes(self.w1, True)
        mpu.set_expert_model_parallel_attributes(self.w2, True)
        self.group, self.gradient_scale = args.expert_parallel_group, 1 / mpu.get_expert_parallel_world_size(args)

    def scale_grad(self, w):
        return ScaleGradient.apply(w, self.gradient_scale)

    def forward(self, x, send_counts, recv_counts):
        x, _ = all_to_all(x, recv_counts, send_counts, self.group)  # the tokens of all ranks for it
        x = x.unsqueeze(0)
        x = torch.bmm(F.gelu(torch.bmm(x, self.scale_grad(self.w1))), self.scale_grad(self.w2))
        return all_to_all(x.squeeze(0), send_counts, recv_counts, self.group)[0]


def allreduce_gradients(model, dp_group):
    for p in model.parameters():
        if not mpu.param_is_expert_model_parallel(p):  # dp_group has the ranks of the expert-parallel group
            p.grad.div_(torch.distributed.get_world_size(dp_group))
            torch.distributed.all_reduce(p.grad, group=dp_group)
