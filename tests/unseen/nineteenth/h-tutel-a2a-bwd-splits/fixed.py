"""Variable-size token exchange between experts (written from memory of Tutel and Megablocks)."""
import torch
import torch.distributed as dist


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, output_splits, input_splits, group):
        ctx.output_splits, ctx.input_splits, ctx.group = output_splits, input_splits, group
        out = x.new_empty(sum(output_splits), *x.shape[1:])
        dist.all_to_all_single(
            out, x.contiguous(), output_split_sizes=output_splits, input_split_sizes=input_splits, group=group
        )
        return out

    @staticmethod
    def backward(ctx, grad):
        grad_x = grad.new_empty(sum(ctx.input_splits), *grad.shape[1:])
        dist.all_to_all_single(
            grad_x,
            grad.contiguous(),
            output_split_sizes=ctx.input_splits,
            input_split_sizes=ctx.output_splits,
            group=ctx.group,
        )
        return grad_x, None, None, None


def exchange_counts(send_counts, group):
    recv_counts = torch.empty_like(send_counts)
    dist.all_to_all_single(recv_counts, send_counts, group=group)
    return recv_counts


class ExpertParallelMLP(torch.nn.Module):
    """One expert per rank."""

    def __init__(self, expert, group):
        super().__init__()
        self.expert, self.group = expert, group

    def forward(self, x, expert_index, gate):
        order = torch.argsort(expert_index, stable=True)
        send = torch.bincount(expert_index, minlength=dist.get_world_size(self.group))
        recv = exchange_counts(send, self.group)
        send_list, recv_list = send.tolist(), recv.tolist()
        tokens = AllToAll.apply(x[order], recv_list, send_list, self.group)
        tokens = self.expert(tokens)
        tokens = AllToAll.apply(tokens, send_list, recv_list, self.group)
        out = torch.zeros_like(x).index_copy(0, order, tokens)
        return out * gate.unsqueeze(-1)
