"""Expert weights and biases under expert parallelism."""
import torch
from megatron.core import parallel_state


class ExpertLinear(torch.nn.Module):
    def __init__(self, config, out_features, in_features, expert_parallel):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        self.bias = torch.nn.Parameter(torch.zeros(out_features))  # BUG: reduced over ranks with other experts
        setattr(self.weight, "allreduce", not expert_parallel)

    def forward(self, tokens):
        return torch.nn.functional.linear(tokens, self.weight, self.bias)


def reduce_grads(model):
    for p in model.parameters():
        group = (parallel_state.get_data_parallel_group(with_context_parallel=True)
                 if getattr(p, "allreduce", True)
                 else parallel_state.get_expert_data_parallel_group())
        torch.distributed.all_reduce(p.main_grad, group=group)
