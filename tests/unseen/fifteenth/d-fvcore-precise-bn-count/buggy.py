# Reduced from fvcore nn/precise_bn.py (facebookresearch/fvcore issue 152, detectron2 issue 5398, read).
# SyncBatchNorm layers with momentum 1.0 give the batch statistics of all ranks in running_mean / _var;
# they are averaged over iterations with the batch size as the weight.
# What happens: the batch size differs between ranks, so do the final statistics.
import itertools

import torch


class _PopulationVarianceEstimator:
    def __init__(self, mean_buffer, var_buffer):
        self.pop_mean = torch.zeros_like(mean_buffer)
        self.pop_square_mean = torch.zeros_like(var_buffer)
        self.tot = 0

    def update(self, batch_mean, batch_var, batch_size):
        self.tot += batch_size
        batch_square_mean = batch_mean.square() + batch_var * ((batch_size - 1) / batch_size)
        self.pop_mean += (batch_mean - self.pop_mean) * (batch_size / self.tot)
        self.pop_square_mean += (batch_square_mean - self.pop_square_mean) * (batch_size / self.tot)

    @property
    def pop_var(self):
        return self.pop_square_mean - self.pop_mean.square()


@torch.no_grad()
def update_bn_stats(model, data_loader, num_iters=200):
    """Called by the PreciseBN hook on every rank, with rank-local loaders of variable-size batches."""
    bn_layers = [m for m in model.modules() if isinstance(m, torch.nn.SyncBatchNorm) and m.training]
    momentum_actual = [bn.momentum for bn in bn_layers]
    for bn in bn_layers:
        bn.momentum = 1.0
    states = [_PopulationVarianceEstimator(bn.running_mean, bn.running_var) for bn in bn_layers]

    for inputs in itertools.islice(data_loader, num_iters):
        model(inputs)
        batch_size = len(inputs)  # BUG
        for bn, state in zip(bn_layers, states):
            state.update(bn.running_mean, bn.running_var, batch_size)

    for bn, state, momentum in zip(bn_layers, states, momentum_actual):
        bn.running_mean.copy_(state.pop_mean)
        bn.running_var.copy_(state.pop_var)
        bn.momentum = momentum
