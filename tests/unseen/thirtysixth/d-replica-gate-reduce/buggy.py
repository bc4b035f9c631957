# thread: https://github.com/InternLM/InternEvo/pull/420
"""Gradient hooks for parameters that every rank of the tensor / weight group holds in full."""
import torch.distributed as dist
from torch import nn

IS_REPLICA_ZERO_PARALLEL = "is_replica_zero_parallel"
IS_TENSOR_ZERO_PARALLEL = "is_tensor_zero_parallel"
IS_WEIGHT_ZERO_PARALLEL = "is_weight_zero_parallel"


class ParallelConfig:
    def __init__(self, tensor_mode="msp", tensor_size=1, weight_size=1, sequence_parallel=True):
        self.tensor_mode = tensor_mode
        self.tensor_size = tensor_size
        self.weight_size = weight_size
        self.sequence_parallel = sequence_parallel

    @property
    def is_isp(self):
        return self.tensor_mode == "isp"


class ParallelContext:
    def __init__(self, config, tensor_group, weight_group, dp_group):
        self.config = config
        self.groups = {"tensor": tensor_group, "weight": weight_group, "data": dp_group}

    def get_group(self, mode):
        return self.groups[mode]


def set_parallel_attr_for_param_groups(model: nn.Module, cfg: ParallelConfig):
    """Norms and the gate are replicated; linear weights are split over the tensor or weight group."""
    split = IS_WEIGHT_ZERO_PARALLEL if cfg.is_isp else IS_TENSOR_ZERO_PARALLEL
    for name, param in model.named_parameters():
        if "norm" in name or name.endswith("gate.wg.weight"):
            setattr(param, IS_REPLICA_ZERO_PARALLEL, True)
        else:
            setattr(param, split, True)
        param.is_gate = "gate" in name.split(".")


def is_replica_zero_parallel_parameter(p):
    return getattr(p, IS_REPLICA_ZERO_PARALLEL, False)


def should_reduce_replica_param(p, cfg: ParallelConfig) -> bool:
    """Tokens are split over the tensor group in all modes with sequence parallelism."""
    if not is_replica_zero_parallel_parameter(p):
        return False
    if cfg.is_isp or p.is_gate:
        return cfg.weight_size > 1  # BUG
    return cfg.sequence_parallel and cfg.tensor_size > 1


class HybridZeroOptimizer:
    def __init__(self, model, optimizer, ctx: ParallelContext, clip_grad_norm=1.0):
        self.model = model
        self.optim = optimizer
        self.ctx = ctx
        self.clip = clip_grad_norm
        self.skip_grad_reduce = False
        self._attach_replica_hooks()

    def _attach_replica_hooks(self):
        group = self.ctx.get_group("tensor")
        for param in self.model.parameters():
            if not param.requires_grad or not should_reduce_replica_param(param, self.ctx.config):
                continue

            def reduce_hook(p):
                if not self.skip_grad_reduce:
                    dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=group)

            param.register_post_accumulate_grad_hook(reduce_hook)

    def _reduce_data_parallel(self):
        group = self.ctx.get_group("data")
        world = dist.get_world_size(group)
        for param in self.model.parameters():
            if param.grad is not None:
                param.grad.div_(world)
                dist.all_reduce(param.grad, group=group)

    def step(self):
        self._reduce_data_parallel()
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)


def train_one_batch(model, optimizer: HybridZeroOptimizer, micro_batches, loss_fn):
    total = 0.0
    for idx, (data, label) in enumerate(micro_batches):
        optimizer.skip_grad_reduce = idx + 1 < len(micro_batches)
        loss = loss_fn(model(**data), label) / len(micro_batches)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total
