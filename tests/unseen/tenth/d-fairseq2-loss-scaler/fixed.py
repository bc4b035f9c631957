"""fp16 loss scaler for data- and tensor-parallel models.

facebookresearch/fairseq2 b22af06385c6, src/fairseq2/optim/fp16_loss_scaler.py
"""
from fairseq2.gang import Gangs
from torch.amp.grad_scaler import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.optim import Optimizer


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
        :param gangs: ``gangs.root`` has every process; ``gangs.dp`` the processes
            with the same part of a tensor-parallel model; ``gangs.rdp`` those of
            them that hold replicas of the same FSDP shard.
        """
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
                "cuda",
                init_scale=init_scale,
                growth_factor=scale_factor,
                backoff_factor=1 / scale_factor,
                growth_interval=scale_window,
            )

        self._grad_scaler = grad_scaler

    def backward(self, loss) -> None:
        self._grad_scaler.scale(loss).backward()

    def run_optimizer_step(self, optimizer: Optimizer):
        loss = self._grad_scaler.step(optimizer)
        self._grad_scaler.update()
        return loss
