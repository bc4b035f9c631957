# Source: mosaicml/composer commit 28edf2b63 (PR #2531), composer/optim/decoupled_weight_decay.py
# The keys of the metrics are gathered into a set and sorted only by a two-valued key. Within equal
# keys the order is that of the set, which differs between processes (string hashing is seeded per
# process): the ranks reduce different metrics with one another.
# Repair: sort by the names.
import math

import torch
from torch.optim import AdamW

from composer.utils import dist


class DecoupledAdamW(AdamW):
    metric_functions = {
        'l2_norm/moment': lambda param, state, step: torch.linalg.vector_norm(state['exp_avg']),
        'l2_norm/param': lambda param, state, step: torch.linalg.vector_norm(param.data),
        'l2_norm/update': lambda param, state, step: torch.linalg.vector_norm(step),
        'l2_norm/grad': lambda param, state, step: torch.linalg.vector_norm(param.grad),
    }

    def pre_reduce_metrics(self, optimizer_metrics):
        """Preprocess metrics to reduce across ranks correctly."""
        # L2 norms need to be squared, before they are reduced via summation
        for metric in list(optimizer_metrics):
            if metric.startswith('l2_norm'):
                optimizer_metrics[metric] = optimizer_metrics[metric]**2
        return optimizer_metrics

    def dist_reduce_metrics(self, optimizer_metrics):
        # with FSDP a rank reports only the layers of which it holds a shard
        local_keys = list(optimizer_metrics.keys())
        all_gathered_keys = dist.all_gather_object(local_keys)
        all_keys = set()
        for keys in all_gathered_keys:
            all_keys.update(keys)

        all_keys = sorted(all_keys, key=lambda metric: 0 if 'l2_norm' in metric else 1)  # BUG
        for metric in all_keys:
            reduced = optimizer_metrics.get(metric, torch.tensor(0.0, device=torch.cuda.current_device()))
            if dist.get_world_size() > 1:
                dist.all_reduce(reduced, reduce_operation='SUM')
            if metric.startswith('l2_norm'):
                optimizer_metrics[metric] = math.sqrt(reduced)
            else:
                optimizer_metrics[metric] = reduced / dist.get_world_size()

        return optimizer_metrics

    def report_per_parameter_metrics(self, param: torch.Tensor, name: str, optimizer_metrics: dict):
        if param in self.state:
            state = self.state[param]
            step = state['exp_avg'] / (state['exp_avg_sq'].sqrt() + self.param_groups[0]['eps'])
            for metric, fn in self.metric_functions.items():
                optimizer_metrics[f'{metric}/{name}'] = fn(param, state, step)
        return optimizer_metrics
