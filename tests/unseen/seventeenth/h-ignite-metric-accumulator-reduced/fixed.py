# Source: pytorch/ignite commit 67c6709b0 (PR #2803), ignite/metrics/metric.py (sync_all_reduce)
# compute() replaces the local accumulators by their sum over the ranks. A later update adds to the
# global sum, and the next compute sums world_size copies of it.
# Repair: compute on reduced copies and put the local accumulators back.
from functools import wraps
from numbers import Number
from typing import Any, Callable

import torch

import ignite.distributed as idist


def sync_all_reduce(*attrs: str) -> Callable:
    """Reduce the attributes over all processes before the decorated `compute`."""

    def wrapper(func: Callable) -> Callable:
        @wraps(func)
        def another_wrapper(self: "Metric", *args: Any, **kwargs: Any):
            ws = idist.get_world_size()
            unreduced_attrs = {}
            if len(attrs) > 0 and ws > 1:
                for attr in attrs:
                    t = getattr(self, attr)
                    unreduced_attrs[attr] = t
                    t_reduced = idist.all_reduce(t if isinstance(t, Number) else t.clone())
                    setattr(self, attr, t_reduced)
            result = func(self, *args, **kwargs)
            for attr, value in unreduced_attrs.items():
                setattr(self, attr, value)
            return result

        return another_wrapper

    return wrapper


class Metric:
    def __init__(self, device: torch.device = torch.device("cpu")):
        self._device = device
        self.reset()


class Loss(Metric):
    def __init__(self, loss_fn: Callable, device: torch.device = torch.device("cpu")):
        self._loss_fn = loss_fn
        super().__init__(device)

    def reset(self) -> None:
        self._sum = torch.tensor(0.0, device=self._device)
        self._num_examples = 0

    def update(self, y_pred: torch.Tensor, y: torch.Tensor) -> None:
        n = len(y)
        self._sum += self._loss_fn(y_pred, y).detach().to(self._device) * n
        self._num_examples += n

    @sync_all_reduce("_sum", "_num_examples")
    def compute(self) -> float:
        return self._sum.item() / self._num_examples
