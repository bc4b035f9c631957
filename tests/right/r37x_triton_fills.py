import torch
import torch.distributed as dist
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gemm_kernel(a_ptr, b_ptr, c_ptr, expert_ptr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    expert = tl.load(expert_ptr + row)
    n, k = tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + row * K + k)
    b = tl.load(b_ptr + expert * K * N + k[:, None] * N + n[None, :])
    tl.store(c_ptr + row * N + n, tl.sum(a[:, None] * b, axis=0))


def group_gemm(a, b, expert_of_row):
    c = torch.zeros((a.size(0), b.size(-1)), device=a.device, dtype=a.dtype)
    gemm_kernel[(a.size(0),)](a, b, c, expert_of_row, b.size(-1), b.size(-2))  # fills `c`
    return c


class AllToAllV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, send, receive):
        ctx.group, ctx.send, ctx.receive = group, send, receive
        y = torch.empty(sum(receive), x.shape[1], dtype=x.dtype, device=x.device)
        dist.all_to_all_single(y, x.contiguous(), output_split_sizes=receive, input_split_sizes=send, group=group)
        return y

    @staticmethod
    def backward(ctx, grad):
        return None, AllToAllV.apply(ctx.group, grad, ctx.receive, ctx.send), None, None


class Experts(nn.Module):
    def __init__(self, experts, dim, ep_group):
        super().__init__()
        self.ep_group = ep_group
        self.ep_size = ep_group.size()
        self.num_local_experts = experts // self.ep_size
        self.expert_down = nn.Parameter(torch.empty((self.num_local_experts, dim, dim)))

    def depermute(self, x, counts):  # from one expert after the other to one rank after the other
        parts = torch.split(x, counts.tolist(), dim=0)
        return torch.cat([parts[i * self.ep_size + j] for j in range(self.ep_size) for i in range(self.num_local_experts)], dim=0)

    def forward(self, x, expert_of_row, counts, send, receive):
        out = group_gemm(x, self.expert_down, expert_of_row)
        out = self.depermute(out, counts)
        return AllToAllV.apply(self.ep_group, out, receive, send)
