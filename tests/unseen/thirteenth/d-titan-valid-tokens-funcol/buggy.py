# One optimizer step with gradient accumulation and a token-normalised loss.
import torch
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule

IGNORE_INDEX = -100


def disable_fsdp_gradient_division(model):
    # gradients are summed, the loss carries the whole normalisation
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)


def cross_entropy_sum(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum", ignore_index=IGNORE_INDEX)


class Trainer:
    def __init__(self, model, optimizer, parallel_dims, accumulation_steps, device):
        disable_fsdp_gradient_division(model)
        self.model, self.optimizer = model, optimizer
        self.batch_mesh = parallel_dims.get_mesh("batch")
        self.accumulation_steps, self.device = accumulation_steps, device

    def train_step(self, data_iterator):
        self.optimizer.zero_grad()
        microbatches = []
        valid_tokens = torch.zeros((), dtype=torch.int64, device=self.device)
        for _ in range(self.accumulation_steps):
            inputs, labels = (t.to(self.device) for t in next(data_iterator))
            valid_tokens += (labels != IGNORE_INDEX).sum()
            microbatches.append((inputs, labels))
        funcol.all_reduce(valid_tokens, "sum", self.batch_mesh)  # BUG
        losses = []
        for inputs, labels in microbatches:
            loss = cross_entropy_sum(self.model(inputs), labels) / valid_tokens
            loss.backward()
            losses.append(loss.detach())
        self.optimizer.step()
        return torch.stack(losses).sum()
