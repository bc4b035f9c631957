"""Gradient accumulation of the Accelerator and of its optimizer wrapper."""
# thread: huggingface/accelerate#2790
import contextlib

import torch

from accelerate.state import GradientState


class AcceleratedOptimizer(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.gradient_state = GradientState()

    def zero_grad(self, set_to_none=None):
        if self.gradient_state.sync_gradients:
            self.optimizer.zero_grad(set_to_none=True if set_to_none is None else set_to_none)

    def step(self, closure=None):
        if self.gradient_state.sync_gradients:
            self.optimizer.step(closure)


class Accelerator:
    def __init__(self, gradient_accumulation_plugin):
        self.gradient_state = GradientState(gradient_accumulation_plugin=gradient_accumulation_plugin)
        self.step = 0

    @property
    def sync_gradients(self):
        return self.gradient_state.sync_gradients

    def _do_sync(self):
        "Sets the right `sync_gradients` context and either resets or increases `self.step`"
        if self.gradient_state.sync_with_dataloader and self.gradient_state.end_of_dataloader:
            self.step = 0
            self.gradient_state._set_sync_gradients(True)
        else:
            self.step += 1
            self.gradient_state._set_sync_gradients((self.step % self.gradient_state.num_steps) == 0)

    @contextlib.contextmanager
    def no_sync(self, model):
        context = getattr(model, "no_sync", contextlib.nullcontext)
        with context():
            yield

    @contextlib.contextmanager
    def accumulate(self, *models):
        sync_each_batch = self.gradient_state.plugin_kwargs.get("sync_each_batch", False)
        self._do_sync()
        allow_gradient_sync = self.sync_gradients or sync_each_batch
        with contextlib.ExitStack() as cm_stack:
            for m in models:
                cm_stack.enter_context(
                    contextlib.nullcontext() if allow_gradient_sync else self.no_sync(m)
                )
            yield

    def backward(self, loss, **kwargs):
        loss = loss / self.gradient_state.num_steps
        loss.backward(**kwargs)
