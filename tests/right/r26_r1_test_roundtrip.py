# RIGHT: a unit test that flattening and unflattening keeps gradients as they are
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def test_roundtrip():
    model = torch.nn.Linear(4, 4)
    model(torch.ones(2, 4)).sum().backward()
    grads = [p.grad for p in model.parameters()]
    before = [g.clone() for g in grads]
    flat = _flatten_dense_tensors(grads)
    for grad, new in zip(grads, _unflatten_dense_tensors(flat, grads)):
        grad.copy_(new)
    for a, b in zip(grads, before):
        assert torch.equal(a, b)
