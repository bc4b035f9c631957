"""Expert parallelism on replicated tokens: each rank runs its experts, outputs are summed."""
import torch
import torch.distributed as dist


class CopyToExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SparseMoeBlock(torch.nn.Module):
    def __init__(self, hidden_size, num_experts, local_experts, first_expert, top_k, ep_group):
        super().__init__()
        self.gate = torch.nn.Linear(hidden_size, num_experts, bias=False)  # replicated over EP
        self.experts = torch.nn.ModuleList(local_experts)
        self.first_expert, self.top_k, self.ep_group = first_expert, top_k, ep_group

    def forward(self, x):
        # x: [tokens, hidden], the same on every EP rank
        weights, index = torch.topk(self.gate(x).softmax(dim=-1), self.top_k)
        x = CopyToExperts.apply(x, self.ep_group)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = (index == self.first_expert + i).nonzero(as_tuple=True)
            y = expert(x[token]) * weights[token, slot, None]  # BUG: replicated weights meet rank-local experts
            out = out.index_add(0, token, y)
        return ReduceFromExperts.apply(out, self.ep_group)
