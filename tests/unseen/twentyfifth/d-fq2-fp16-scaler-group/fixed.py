# fairseq2 b22af0638 (PR #1374): the fp16 loss scaler shares found_inf over the data-parallel gang only; with
# tensor parallelism one TP rank can skip a step (and change its scale) that its peers take.
from __future__ import annotations

from typing import final

from torch import Tensor
from torch.cuda.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.optim import Optimizer

from fairseq2.gang import Gangs


@final
class StandardFloat16LossScaler:
    def __init__(
        self,
        gangs: Gangs,
        *,
        init_scale: float = 2.0**16,
        scale_factor: float = 2.0,
        scale_window: int = 2000,
        min_scale: float = 0.0001,
    ) -> None:
        """
        :param gangs: ``root`` is the whole world; ``dp`` and ``tp`` its data and tensor parallel gangs; ``rdp``
            and ``sdp`` the replicated and sharded parts of ``dp``.
        """
        # Gradients differ between ranks with FSDP and with tensor parallelism.
        sharded = gangs.root.size != gangs.rdp.size

        grad_scaler: GradScaler

        if sharded:
            pg = gangs.root.as_process_group()
            grad_scaler = ShardedGradScaler(
                init_scale=init_scale,
                growth_factor=scale_factor,
                backoff_factor=1 / scale_factor,
                growth_interval=scale_window,
                process_group=pg,
            )
        else:
            grad_scaler = GradScaler(
                init_scale=init_scale,
                growth_factor=scale_factor,
                backoff_factor=1 / scale_factor,
                growth_interval=scale_window,
            )
        self._grad_scaler = grad_scaler
        self._min_scale = min_scale

    def backward(self, loss: Tensor) -> None:
        self._grad_scaler.scale(loss).backward()

    def run_optimizer_step(self, optimizer: Optimizer) -> tuple[float, float]:
        # The optimizer is stepped only if no gradient of the group is inf or nan.
        self._grad_scaler.step(optimizer)
        old_scale = self._grad_scaler.get_scale()
        self._grad_scaler.update()
        new_scale = self._grad_scaler.get_scale()
        if new_scale < self._min_scale:
            self._grad_scaler.update(self._min_scale)
        return old_scale, new_scale
