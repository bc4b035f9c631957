import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region


def crit(logits, labels, z_coef):
    logits = gather_from_tensor_model_parallel_region(logits).float()
    ce = F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return ce


def train(model, loader, opt, z_coef=1e-4):
    for ids, labels in loader:
        loss = crit(model(ids), labels, z_coef)
        loss.backward()
        for p in model.parameters():
            torch.distributed.all_reduce(p.grad, op=torch.distributed.ReduceOp.AVG, group=parallel_state.get_data_parallel_group())
        opt.step()
        opt.zero_grad()
