# fairseq2 b22af0638 (#1374)
"""fp16 loss scaling with FSDP and tensor parallelism."""
import torch
from fairseq2.gang import Gangs
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


class StandardFloat16LossScaler:
    def __init__(self, gangs: Gangs, init_scale=2.0**15, scale_factor=2.0, scale_window=2000):
        # gangs.root: all ranks; gangs.dp, gangs.tp: its data- and tensor-parallel slices
        self._gangs = gangs
        kwargs = dict(
            init_scale=init_scale,
            growth_factor=scale_factor,
            backoff_factor=1 / scale_factor,
            growth_interval=scale_window,
        )
        # gradients differ between ranks unless all parallelism is replicated data parallelism
        sharded = gangs.root.size != gangs.rdp.size
        if sharded:
            pg = gangs.root.as_process_group()
            self._grad_scaler = ShardedGradScaler(process_group=pg, **kwargs)
        else:
            self._grad_scaler = GradScaler("cuda", **kwargs)

    def backward(self, loss: torch.Tensor) -> None:
        self._grad_scaler.scale(loss).backward()

    def run_optimizer_step(self, optimizer) -> None:
        self._grad_scaler.unscale_(optimizer)  # collects found_inf over the process group
        self._grad_scaler.step(optimizer)
        self._grad_scaler.update()
