"""Distillation where student and teacher logits are cut by vocabulary (megatron modelopt style)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class LogitsKLLoss(nn.Module):
    """Logits: [s, b, vocab / tp]."""

    def __init__(self, model_config, temperature=1.0):
        super().__init__()
        self._config = model_config
        self._temperature = temperature

    def _log_softmax(self, logits):
        group = parallel_state.get_tensor_model_parallel_group()
        top = logits.detach().max(dim=-1, keepdim=True)[0]
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - top
        denom = dist_nn.all_reduce(shifted.exp().sum(dim=-1, keepdim=True), group=group)
        return shifted - denom.log()

    # spmd: predictions: {tp: S(-1)}, targets: {tp: S(-1)}
    def forward(self, predictions, targets):
        student = predictions.float() / self._temperature
        teacher = targets.float().detach() / self._temperature
        if self._config.tensor_model_parallel_size > 1:
            log_p, log_q = self._log_softmax(student), self._log_softmax(teacher)
            loss = (log_q.exp() * (log_q - log_p)).sum(dim=-1)
            loss = reduce_from_tensor_model_parallel_region(loss)
        else:
            loss = F.kl_div(F.log_softmax(student, -1), F.softmax(teacher, -1), reduction="none").sum(-1)
        return self._masked_mean(loss)

    def _masked_mean(self, loss):
        loss = loss.transpose(0, 1).contiguous() * self._temperature**2
        return torch.clamp(loss, max=10.0).mean()
