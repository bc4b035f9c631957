# Learn rotation and smoothing matrices of a frozen LLM with FSDP.
import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class RotateModule(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(dim, dtype=torch.float32))

    def forward(self, x):
        return (x.float() @ self.weight).to(x.dtype)


def wrap(model, layer_cls):
    for name, p in model.named_parameters():
        p.requires_grad_("rotate" in name)
    rotations = [m for m in model.modules() if isinstance(m, RotateModule)]
    for m in rotations:
        m.cuda()
    # base weights are bf16, rotations stay fp32 and cannot share a flat parameter with them
    fsdp = FSDP(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer_cls}),
        ignored_modules=rotations,  # BUG
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )
    return fsdp, [m.weight for m in rotations]


def train(model, layer_cls, loader, lr):
    fsdp, params = wrap(model, layer_cls)
    optimizer = torch.optim.AdamW(params, lr=lr)
    for batch in loader:
        loss = fsdp(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        torch.save([p.data.cpu() for p in params], "rotations.pt")
