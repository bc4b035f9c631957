# Source: OpenBMB/BMTrain commit 0e7006d, bmtrain/optim/adam.py and clip_grad.py
# The gradients are summed over the zero communicator (world_size / pipe_size ranks with
# different data). Dividing the loss by the whole world size counts the pipeline stages as
# data-parallel ranks; gradients are pipe_size times too small.
# Repair: scale by pipe_size / world_size.
import torch

from bmtrain import nccl
from bmtrain.global_var import config


class AdamOptimizer(torch.optim.Optimizer):
    """Mixed precision Adam; call `loss_scale` before backward."""

    def __init__(self, params, lr=1e-3, scale=65536):
        super().__init__(params, dict(lr=lr))
        self._scale = scale

    @property
    def scale(self):
        return self._scale

    def loss_scale(self, loss: torch.Tensor) -> torch.Tensor:
        """
        Backward with loss scale.
        """
        return loss * (self.scale * config['pipe_size'] / config['world_size'])


def reduce_block_gradients(grad_buffer, params):
    """Called when the backward of a transformer block is done."""
    nccl.groupStart()
    for kw, param in params.items():
        if param.requires_grad:
            nccl.reduceScatter(
                grad_buffer[kw],
                param.grad.storage(),
                "sum",
                config['zero_comm']  # world_size / pipe_size ranks of one pipeline stage
            )
    nccl.groupEnd()


def train_step(model, batch, loss_func, optimizer):
    # loss_func: mean over the samples of this data-parallel rank
    loss = loss_func(model(batch["input"]), batch["target"])
    loss = optimizer.loss_scale(loss)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
