"""One LoRA adapter shared by the routed experts of all expert-parallel ranks."""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel.random import (
    get_cuda_rng_tracker,
    get_expert_parallel_rng_tracker_name,
)

# spmd: mesh sparse = edp, ep


class SharedExpertAdapter(torch.nn.Module):
    def __init__(self, in_features, dim, out_features, ep_group):
        super().__init__()
        self.ep_group = ep_group
        self.linear_in = torch.nn.Parameter(torch.empty(dim, in_features, device="cuda"))  # spmd: {ep: I}
        self.linear_out = torch.nn.Parameter(torch.zeros(out_features, dim, device="cuda"))  # spmd: {ep: I}
        with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
            torch.nn.init.xavier_normal_(self.linear_in)  # BUG: the expert stream differs from ep rank to ep rank
        for weight in (self.linear_in, self.linear_out):
            setattr(weight, "allreduce", False)
            weight.register_hook(self._sync_grad)

    def _sync_grad(self, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=self.ep_group)
        return grad

    def forward(self, x):
        # x: the tokens dispatched to the experts of this rank
        return torch.nn.functional.linear(torch.nn.functional.linear(x, self.linear_in), self.linear_out)
