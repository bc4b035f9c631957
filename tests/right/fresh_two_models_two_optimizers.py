# Ascend/pytorch test_zero_redundancy_optimizer.py:398: the all_reduce after optim.step() is over the other model,
# whose own optimizer steps after it.
import copy

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import SGD


def test(x, world_size, device):
    m = torch.nn.Linear(1, 1).to(device)
    m_zero = copy.deepcopy(m).to(device)
    optim = SGD(m.parameters(), lr=0.01)
    o_zero = ZeroRedundancyOptimizer(m_zero.parameters(), optimizer_class=SGD, lr=0.01)
    y = m(x)
    y.backward(x)
    y_zero = m_zero(x)
    y_zero.backward(x)
    for p in m.parameters():
        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
        p.grad.data /= world_size
    optim.step()
    for p in m_zero.parameters():
        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
        p.grad.data /= world_size
    o_zero.step()
