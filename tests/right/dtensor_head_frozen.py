"""The frozen head is materialised for a fused loss; it gets no gradient, so none needs placing."""
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def freeze(module):
    for p in module.parameters():
        p.requires_grad_(False)


class HeadLoss:
    def __init__(self, head, chunks=8):
        self.head, self.chunks = head, chunks

    def __call__(self, hidden, labels):
        weight = self.head.weight
        if isinstance(weight, DTensor):
            weight = weight.detach().full_tensor()
        total = 0.0
        for h, y in zip(hidden.chunk(self.chunks, dim=1), labels.chunk(self.chunks, dim=1)):
            logits = F.linear(h, weight).float()
            total = total + F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")
        return total / labels.numel()


def main(backbone, head, loader, world):
    mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("dp",))
    freeze(head)
    fully_shard(head, mesh=mesh)
    for layer in backbone.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(backbone, mesh=mesh)
    optimizer = torch.optim.AdamW(backbone.parameters(), lr=1e-5)
    loss_fn = HeadLoss(head)
    for tokens, labels in loader:
        loss = loss_fn(backbone(tokens), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
