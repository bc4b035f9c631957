"""Cross entropy over vocabulary-sharded logits."""
# thread: NVIDIA-NeMo/Automodel#3853
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


class CrossEntropyFunction(torch.autograd.Function):
    """Logits are [B, S, V / tp]; the gradient is computed in the forward pass."""

    @staticmethod
    def forward(ctx, _input, target, reduce_loss, dist_process_group, ignore_idx):
        tp_rank = dist.get_rank(dist_process_group)
        v = _input.size(-1)
        logits = _input.float()

        row_max = logits.amax(dim=-1)
        dist.all_reduce(row_max, op=dist.ReduceOp.MAX, group=dist_process_group)
        exp = (logits - row_max.unsqueeze(-1)).exp()
        denom = exp.sum(dim=-1)
        dist.all_reduce(denom, op=dist.ReduceOp.SUM, group=dist_process_group)

        owned = (target >= tp_rank * v) & (target < (tp_rank + 1) * v)
        local_target = torch.where(owned, target - tp_rank * v, torch.zeros_like(target))
        picked = logits.gather(-1, local_target.unsqueeze(-1)).squeeze(-1) - row_max
        picked = torch.where(owned, picked, torch.zeros_like(picked))
        dist.all_reduce(picked, op=dist.ReduceOp.SUM, group=dist_process_group)

        valid = target != ignore_idx
        loss = (denom.log() - picked) * valid

        grad = exp / denom.unsqueeze(-1)
        grad.scatter_add_(-1, local_target.unsqueeze(-1), -owned.unsqueeze(-1).to(grad.dtype))
        grad = grad * valid.unsqueeze(-1)
        if reduce_loss:
            n_valid = valid.sum().clamp(min=1)
            loss, grad = loss.sum() / n_valid, grad / n_valid

        ctx.save_for_backward(grad.to(_input.dtype))
        ctx.reduce_loss = reduce_loss
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        (grad,) = ctx.saved_tensors
        grad_output = grad_output.reshape(-1)[0]  # BUG: an unreduced loss has one upstream gradient per token
        return grad * grad_output.to(grad.dtype), None, None, None, None


class TEParallelCrossEntropy:
    def __init__(self, ignore_index=-100, reduction="mean", tp_group=None):
        self.ignore_index, self.reduction, self.tp_group = ignore_index, reduction, tp_group

    def __call__(self, logits, labels, loss_weight=None):
        if isinstance(logits, DTensor):
            self.tp_group = logits.device_mesh.get_group("tp")
            logits = logits.to_local()
        loss = CrossEntropyFunction.apply(
            logits, labels, self.reduction == "mean", self.tp_group, self.ignore_index
        )
        return loss if loss_weight is None else (loss * loss_weight).sum()
