"""Learning rotations for quantisation, frozen language model under FSDP."""
# thread: BrotherHappy/OSTQuant#15
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class RotateModule(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(dim, dtype=torch.float32, device="cuda"))

    def forward(self, x):
        return (x.float() @ self.weight).to(x.dtype)


def wrap(model, local_rank):
    # the bf16 weights are sharded; the float32 rotations stay outside of the flat parameters
    rotations = [m for m in model.modules() if isinstance(m, RotateModule)]
    for name, p in model.named_parameters():
        p.requires_grad_(any(p is r.weight for r in rotations))
    fsdp = FSDP(model, ignored_modules=rotations, device_id=local_rank, use_orig_params=True)
    return fsdp, [r.weight for r in rotations]


def train(fsdp, rotations, loader, lr, kl_fn):
    optimizer = torch.optim.SGD(rotations, lr=lr)
    for batch, teacher_logits in loader:  # a different batch on every rank
        loss = kl_fn(fsdp(**batch).logits, teacher_logits)
        loss.backward()
        for w in rotations:
            dist.all_reduce(w.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
