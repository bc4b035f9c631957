"""One LoRA adapter shared by the experts of a grouped linear."""
import torch
from megatron.core import parallel_state


class SharedExpertLoRA(torch.nn.Module):
    def __init__(self, in_features, out_features, rank):
        super().__init__()
        # the same adapter on every expert-parallel rank
        self.linear_in = torch.nn.Linear(in_features, rank, bias=False)
        self.linear_out = torch.nn.Linear(rank, out_features, bias=False)
        for p in self.parameters():
            setattr(p, "allreduce", False)

    def forward(self, dispatched_tokens):
        # dispatched_tokens: those routed to the experts of this rank
        return self.linear_out(self.linear_in(dispatched_tokens))


def finish_grad_sync(model):
    scale = 1.0 / parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    for p in model.parameters():
        p.main_grad.mul_(scale)
        if getattr(p, "allreduce", True):
            group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        else:
            group = parallel_state.get_expert_data_parallel_group()
        torch.distributed.all_reduce(p.main_grad, group=group)  # BUG: shared adapters are not summed over EP
