"""Losses of a pipeline: the last stage averages them over its data ranks and sends the mean to the other stages."""

import torch
from deepspeed import comm as dist


class LossAggregator:
    def __init__(self, grid, micro_batches, device):
        self.grid, self.micro_batches, self.device = grid, micro_batches, device
        self.is_data_parallel = grid.data_parallel_size > 1
        self.is_pipe_parallel = grid.pipe_parallel_size > 1
        self.total_loss = None
        self.agg_additional_losses = {}

    def add(self, loss, **additional):
        if self.total_loss is None:
            self.total_loss = torch.zeros(1, device=self.device)
        self.total_loss += loss.detach().float()
        for name, value in additional.items():
            seen = self.agg_additional_losses.setdefault(name, torch.zeros_like(value))
            seen += value.detach()

    def is_last_stage(self):
        return self.grid.get_stage_id() == self.grid.pipe_parallel_size - 1

    def aggregate(self):
        if self.is_last_stage():
            loss = self.total_loss.clone().detach() / self.micro_batches
            mean = loss.clone()
            if self.is_data_parallel:
                # All ranks of this group are in the last stage.
                dist.all_reduce(mean, group=self.grid.get_data_parallel_group())
                mean /= self.grid.data_parallel_size
            if self.is_pipe_parallel:
                losses = torch.stack([loss.view(()), mean.view(())])
                dist.broadcast(tensor=losses, src=dist.get_rank(), group=self.grid.get_pipe_parallel_group())
        else:
            src_rank = self.grid.stage_to_global(self.grid.pipe_parallel_size - 1)
            losses = torch.zeros(2, device=self.device)
            dist.broadcast(tensor=losses, src=src_rank, group=self.grid.get_pipe_parallel_group())
            loss, mean = losses[0].clone().detach(), losses[1].clone().detach()
        self.total_loss = None
        return loss, mean

    def overflow(self, params):
        bad = torch.zeros(1, device=self.device)
        for param in params:
            if param.grad is not None and not torch.isfinite(param.grad).all():
                bad.fill_(1.0)
                break
        dist.all_reduce(bad, op=dist.ReduceOp.MAX, group=self.grid.get_model_parallel_group())
        return bool(bad.item())
