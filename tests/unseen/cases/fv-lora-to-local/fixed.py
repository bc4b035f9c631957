"""LoRA adapters added after FSDP wrapping."""
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor


class LoRALinear(torch.nn.Module):
    def __init__(self, base, rank, device_mesh):
        super().__init__()
        self.base = base
        a = torch.randn(rank, base.in_features) * 0.01
        b = torch.zeros(base.out_features, rank)
        # replicated over the data mesh, not managed by FSDP
        self.lora_A = torch.nn.Parameter(distribute_tensor(a, device_mesh, [Replicate()]))
        self.lora_B = torch.nn.Parameter(distribute_tensor(b, device_mesh, [Replicate()]))

    def forward(self, x):
        # x: this data rank's samples
        lora_a, lora_b = self.lora_A, self.lora_B
        if isinstance(lora_a, DTensor):
            lora_a = lora_a.to_local(grad_placements=[Partial("avg")])
            lora_b = lora_b.to_local(grad_placements=[Partial("avg")])
        return self.base(x) + x @ lora_a.t() @ lora_b.t()
