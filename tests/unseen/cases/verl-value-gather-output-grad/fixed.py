"""Token classification head on a sequence-parallel Megatron model."""
# verl / slapo PR 20: the gathered output goes into a duplicated computation, its gradient has to be split, not reduce-scattered.
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class ParallelMLP(torch.nn.Module):
    def __init__(self, w_in, w_out):
        super().__init__()
        self.w_in = torch.nn.Parameter(w_in)
        self.w_in.tensor_model_parallel = True
        self.w_out = torch.nn.Parameter(w_out)
        self.w_out.tensor_model_parallel = True

    def forward(self, x):
        # x: [s/tp, b, h]
        x = gather_from_sequence_parallel_region(x)
        x = F.gelu(F.linear(x, self.w_in))
        return reduce_scatter_to_sequence_parallel_region(F.linear(x, self.w_out))


class RewardHead(torch.nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, hidden_size))
        self.weight.sequence_parallel = True

    def forward(self, hidden_states):
        score = F.linear(hidden_states, self.weight)
        score = gather_from_sequence_parallel_region(score, tensor_parallel_output_grad=False)
        return score.squeeze(-1)


class RewardModel(torch.nn.Module):
    def __init__(self, hidden_size, w_in, w_out):
        super().__init__()
        self.mlp = ParallelMLP(w_in, w_out)
        self.head = RewardHead(hidden_size)

    def forward(self, hidden_states):
        return self.head(self.mlp(hidden_states))


def loss_func(model, hidden_states, chosen, rejected):
    # chosen, rejected: last positions of the pairs, the same on all ranks of the TP group
    assert parallel_state.get_tensor_model_parallel_world_size() > 1
    score = model(hidden_states)
    pos = score.gather(0, chosen.unsqueeze(0)).squeeze(0)
    neg = score.gather(0, rejected.unsqueeze(0)).squeeze(0)
    return -F.logsigmoid(pos - neg).mean()
