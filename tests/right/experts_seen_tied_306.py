import torch


class Experts(torch.nn.Module):
    """The second projection is the first one transposed unless it is asked for."""

    def __init__(self, config, experts, hidden_size):
        super().__init__()
        if config.expert_model_parallel_size > 1:
            assert config.tie_expert_weights, "expert parallelism needs tied projections"
        self.weight1 = torch.nn.Parameter(torch.empty(experts, hidden_size, 4 * hidden_size))
        self.weight1.allreduce = config.expert_model_parallel_size == 1
        if not config.tie_expert_weights:
            self.weight2 = torch.nn.Parameter(torch.empty(experts, 4 * hidden_size, hidden_size))
