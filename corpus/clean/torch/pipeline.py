"""A pipeline by hand: activations go forward, gradients come back, micro-batches fill and drain."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Stage(nn.Module):
    def __init__(self, layers, recompute):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.recompute = recompute

    def forward(self, x):
        for layer in self.layers:
            if self.recompute and self.training:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return x


class Pipeline:
    def __init__(self, stage, group, shape, dtype=torch.float32):
        self.stage, self.group = stage, group
        self.shape, self.dtype = shape, dtype
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.first, self.last = self.rank == 0, self.rank == self.size - 1
        self.inputs, self.outputs = [], []

    def _peer(self, offset):
        return dist.get_global_rank(self.group, self.rank + offset)

    def _recv(self, offset, requires_grad):
        buffer = torch.empty(self.shape, dtype=self.dtype, device="cuda", requires_grad=requires_grad)
        dist.recv(buffer.data, src=self._peer(offset), group=self.group)
        return buffer

    def forward_step(self, batch, losses):
        if self.first:
            x = batch["input"].cuda()
        else:
            x = self._recv(-1, requires_grad=True)
        out = self.stage(x)
        if self.last:
            out = F.cross_entropy(out.flatten(0, 1), batch["target"].cuda().flatten())
            losses.append(out.detach())
        else:
            dist.send(out.detach(), dst=self._peer(1), group=self.group)
        self.inputs.append(x)
        self.outputs.append(out)

    def backward_step(self, micro_batches):
        x, out = self.inputs.pop(0), self.outputs.pop(0)
        if self.last:
            (out / micro_batches).backward()
        else:
            grad = self._recv(1, requires_grad=False)
            torch.autograd.backward(out, grad_tensors=grad)
        if not self.first:
            dist.send(x.grad, dst=self._peer(-1), group=self.group)

    def run(self, batches):
        losses = []
        for batch in batches:
            self.forward_step(batch, losses)
        for _ in batches:
            self.backward_step(len(batches))
        loss = torch.stack(losses).mean() if self.last else torch.zeros((), device="cuda")
        dist.broadcast(loss, src=dist.get_global_rank(self.group, self.size - 1), group=self.group)
        return loss
