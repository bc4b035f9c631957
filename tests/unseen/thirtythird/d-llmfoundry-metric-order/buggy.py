"""Optimizer monitor: reduce per-parameter metrics over FSDP ranks.

Source: https://github.com/mosaicml/llm-foundry/issues/578
Wrong: the gathered names are put in a set and sorted with a key that is 0 or 1 for all of them;
ties keep the set's order, which differs between processes (hash seed), so ranks pair different
metrics in the same all_reduce.
Repair: a total order on the names.
"""
import torch
from composer.core import Callback
from composer.utils import dist


class OptimizerMonitor(Callback):
    def __init__(self, log_optimizer_metrics: bool = True):
        self.log_optimizer_metrics = log_optimizer_metrics

    def collect(self, state):
        metrics = {}
        for name, p in state.model.named_parameters():
            # a rank has only the parameters of which it holds a shard
            if p.grad is not None and p.requires_grad and p.grad.numel() > 0:
                metrics[f"l2_norm/grad/{name}"] = torch.linalg.vector_norm(p.grad)
                metrics[f"l2_norm/param/{name}"] = torch.linalg.vector_norm(p.data)
        return self.reduce(metrics)

    def reduce(self, optimizer_metrics):
        local_keys = list(optimizer_metrics.keys())
        all_keys = set()
        for keys in dist.all_gather_object(local_keys):
            all_keys.update(keys)
        all_keys = sorted(all_keys, key=lambda metric: 0 if "l2_norm" in metric else 1)  # BUG: ties in set order
        for metric in all_keys:
            reduced = optimizer_metrics.get(metric, torch.tensor(0.0, device=torch.cuda.current_device()))
            if metric.startswith("l2_norm"):
                reduced = reduced**2
                dist.all_reduce(reduced, reduce_operation="SUM")
                optimizer_metrics[metric] = torch.sqrt(reduced)
            else:
                dist.all_reduce(reduced, reduce_operation="SUM")
                optimizer_metrics[metric] = reduced / dist.get_world_size()
        return optimizer_metrics
