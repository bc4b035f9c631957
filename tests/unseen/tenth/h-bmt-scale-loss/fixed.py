"""Loss scaling with ZeRO, pipeline and tensor parallelism.

OpenBMB/BMTrain 99eda097632c, bmtrain/optim/optim_manager.py
"""
import torch
from bmtrain import nccl
from bmtrain.global_var import config


def init_parallel_sizes(world_size, pipe_size, tp_size):
    config["world_size"] = world_size
    config["pipe_size"] = pipe_size
    config["tp_size"] = tp_size
    config["zero_size"] = world_size // (pipe_size * tp_size)


class OpAllGather(torch.autograd.Function):
    """A parameter is stored in `zero_size` parts and gathered where it is used."""

    @staticmethod
    def forward(ctx, value):
        out = torch.empty(value.numel() * config["zero_size"], dtype=value.dtype, device=value.device)
        nccl.allGather(value.storage(), out.storage(), config["zero_comm"])
        ctx.partition_size = value.numel()
        return out

    @staticmethod
    def backward(ctx, grad_output):
        grad = torch.empty(ctx.partition_size, dtype=grad_output.dtype, device=grad_output.device)
        nccl.reduceScatter(grad_output.contiguous().storage(), grad.storage(), "sum", config["zero_comm"])
        return grad


class OptimManager:
    def __init__(self, loss_scale, optimizers):
        self.loss_scale = loss_scale
        self.optimizers = optimizers

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * (self.loss_scale / config["world_size"] * config["pipe_size"] * config["tp_size"])

    def backward(self, loss: torch.Tensor):
        loss = self.scale_loss(loss)
        loss.backward()
        torch.cuda.current_stream().wait_stream(config["load_stream"])

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step(scale=self.loss_scale)
