"""Data parallelism with declared inputs: every rank has its own loss, the wrapper or a loop averages the gradients."""

# spmd: mesh data = dp
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


# spmd: inputs: {dp: V}, labels: {dp: V}
def train_step(model: DDP, optimizer, inputs, labels):
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    shown = loss.detach().clone()
    dist.all_reduce(shown, op=dist.ReduceOp.AVG)
    return shown


# spmd: inputs: {dp: V}, labels: {dp: V}
def wrapped_step(network, inputs, labels, optimizer):
    model = DDP(network.cuda())
    loss = F.mse_loss(model(inputs), labels)
    loss.backward()
    optimizer.step()


# spmd: inputs: {dp: V}, weight: {dp: R}
def manual_step(inputs, weight, lr: float):
    loss = F.linear(inputs, weight).square().mean()
    loss.backward()
    with torch.no_grad():
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
        weight -= lr * weight.grad
        weight.grad = None
