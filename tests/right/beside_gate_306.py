"""the layer holds experts of this rank, and a gate that all ranks have."""
import torch


class Mixture(torch.nn.Module):
    def __init__(self, config, experts, local_experts, hidden_size):
        super().__init__()
        self.expert_parallel = config.expert_model_parallel_size > 1
        self.gate = torch.nn.Parameter(torch.empty(experts, hidden_size))
        self.weight1 = torch.nn.Parameter(torch.empty(local_experts, hidden_size, 4 * hidden_size))
        self.weight2 = torch.nn.Parameter(torch.empty(local_experts, 4 * hidden_size, hidden_size))
        for parameter in (self.weight1, self.weight2):
            setattr(parameter, "allreduce", not self.expert_parallel)
