"""TPU precision plugin."""
# thread: Lightning-AI/pytorch-lightning#15878
from functools import partial
from typing import Any, Callable

import torch_xla.core.xla_model as xm

import pytorch_lightning as pl
from lightning_fabric.utilities.types import Optimizable
from pytorch_lightning.plugins.precision.precision_plugin import PrecisionPlugin
from pytorch_lightning.utilities.exceptions import MisconfigurationException


class TPUPrecisionPlugin(PrecisionPlugin):
    """The closure runs training_step, backward and gradient clipping."""

    def _after_closure(self, model: "pl.LightningModule", optimizer: Optimizable, optimizer_idx: int) -> None:
        trainer = model.trainer
        trainer._call_callback_hooks("on_before_optimizer_step", optimizer, optimizer_idx)
        trainer._call_lightning_module_hook("on_before_optimizer_step", optimizer, optimizer_idx)
        self._clip_gradients(
            model,
            optimizer,
            optimizer_idx,
            trainer.gradient_clip_val,
            gradient_clip_algorithm=trainer.gradient_clip_algorithm,
        )

    def _tpu_wrap_closure(
        self,
        model: "pl.LightningModule",
        optimizer: Optimizable,
        optimizer_idx: int,
        closure: Callable[[], Any],
    ) -> Any:
        closure_result = closure()
        xm.reduce_gradients(optimizer)
        self._after_closure(model, optimizer, optimizer_idx)
        return closure_result

    def optimizer_step(
        self,
        optimizer: Optimizable,
        model: "pl.LightningModule",
        optimizer_idx: int,
        closure: Callable[[], Any],
        **kwargs: Any,
    ) -> Any:
        closure = partial(self._tpu_wrap_closure, model, optimizer, optimizer_idx, closure)
        closure_result = optimizer.step(closure=closure, **kwargs)
        xm.mark_step()
        skipped_backward = closure_result is None
        # in manual optimization, the closure does not return a value
        if model.automatic_optimization and skipped_backward:
            raise MisconfigurationException(
                "Skipping backward by returning `None` from your `training_step` is not implemented with TPUs."
            )
        return closure_result
