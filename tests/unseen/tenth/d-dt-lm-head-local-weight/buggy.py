"""Vocabulary-parallel output head on a device mesh."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel


class ParallelLMHead(nn.Module):
    def __init__(self, vocab_size, hidden_size, tp_mesh):
        super().__init__()
        self.tp_mesh = tp_mesh
        weight = torch.empty(vocab_size, hidden_size, device="cuda")
        nn.init.normal_(weight, std=hidden_size ** -0.5)
        self.weight = nn.Parameter(distribute_tensor(weight, tp_mesh, [Shard(0)]))

    def forward(self, hidden_states):
        # hidden_states: plain tensor, the same on all tp ranks
        logits = F.linear(hidden_states, self.weight.to_local())  # BUG: gradient of hidden_states stays partial over tp
        return DTensor.from_local(logits, self.tp_mesh, [Shard(2)], run_check=False)


def train_step(model, lm_head, optimizer, input_ids, labels):
    optimizer.zero_grad()
    with loss_parallel():
        logits = lm_head(model(input_ids))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
    optimizer.step()
    return loss.detach()
