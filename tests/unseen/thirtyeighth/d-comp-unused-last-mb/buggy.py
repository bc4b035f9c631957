"""When gradients are synchronised during gradient accumulation."""
# thread: mosaicml/composer#9
from contextlib import contextmanager, nullcontext
from typing import Callable, ContextManager, Optional, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from composer.core import State
from composer.utils import StringEnum, dist


class DDPSyncStrategy(StringEnum):
    SINGLE_AUTO_SYNC = "single_auto_sync"
    MULTI_AUTO_SYNC = "multi_auto_sync"


def _get_ddp_sync_strategy(ddp_sync_strategy: Optional[str], find_unused_parameters: bool):
    if ddp_sync_strategy is not None:
        return DDPSyncStrategy(ddp_sync_strategy)
    return DDPSyncStrategy.SINGLE_AUTO_SYNC  # BUG: parameters unused in the last microbatch are never synchronised


@contextmanager
def ddp_sync_context(state: State, is_final_microbatch: bool, sync_strategy: DDPSyncStrategy):
    if not isinstance(state.model, DistributedDataParallel):
        yield
        return
    no_sync_context = cast(Callable[[], ContextManager], state.model.no_sync)
    if sync_strategy == DDPSyncStrategy.SINGLE_AUTO_SYNC and not is_final_microbatch:
        context = no_sync_context
    else:
        context = nullcontext
    with context():
        yield


def prepare_ddp_module(module: torch.nn.Module, find_unused_parameters: bool) -> torch.nn.Module:
    if dist.is_initialized() and any(p.requires_grad for p in module.parameters()):
        return DistributedDataParallel(module, find_unused_parameters=find_unused_parameters)
    return module


class Trainer:
    """Algorithms such as stochastic depth drop layers at random in every forward pass."""

    def __init__(self, state: State, ddp_sync_strategy=None, find_unused_parameters=False):
        self.state = state
        self._sync_strategy = _get_ddp_sync_strategy(ddp_sync_strategy, find_unused_parameters)
        self.state.model = prepare_ddp_module(state.model, find_unused_parameters)

    def _train_microbatches(self, microbatches):
        for optimizer in self.state.optimizers:
            optimizer.zero_grad()
        batch_size = sum(self.state.get_batch_size(mb) for mb in microbatches)
        for i, microbatch in enumerate(microbatches):
            is_final = i + 1 == len(microbatches)
            with ddp_sync_context(self.state, is_final, self._sync_strategy):
                outputs = self.state.model(microbatch)
                loss = self.state.loss_fn(outputs, microbatch)
                loss = loss * (self.state.get_batch_size(microbatch) / batch_size)
                loss.backward()
        for optimizer in self.state.optimizers:
            optimizer.step()
