# Right: the model leaves vocabulary slices on tp ranks, the criterion gathers them (backward splits) and every tp rank computes the same
# loss.
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region


class WholeVocabLoss(nn.Module):
    """The model's head leaves each rank its slice of the vocabulary (parallel_output=True)."""

    def __init__(self, z_coef):
        super().__init__()
        self.z_coef = z_coef

    def forward(self, logits, labels):
        logits = gather_from_tensor_model_parallel_region(logits).float()
        ce = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        z = torch.logsumexp(logits, -1).square().mean()
        return ce + self.z_coef * z


def train(model, loader, opt, z_coef=1e-4):
    crit = WholeVocabLoss(z_coef)
    for ids, labels in loader:
        loss = crit(model(ids), labels)
        loss.backward()
        for p in model.parameters():
            torch.distributed.all_reduce(p.grad, op=torch.distributed.ReduceOp.AVG, group=parallel_state.get_data_parallel_group())
        opt.step()
        opt.zero_grad()
