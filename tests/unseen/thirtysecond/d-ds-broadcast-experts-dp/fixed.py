"""Initial broadcast of the parameters.
microsoft/DeepSpeed, runtime/engine.py, from memory.
"""
import torch
import deepspeed.comm as dist
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import is_moe_param
from deepspeed.utils import groups


class DeepSpeedEngine(torch.nn.Module):
    def __init__(self, model, mpu=None):
        super().__init__()
        self.module, self.mpu = model, mpu
        self.has_moe_layers = any(isinstance(m, MoE) for m in model.modules())
        self.seq_data_parallel_group = groups._get_sequence_data_parallel_group()
        self.expert_data_parallel_group = groups._get_expert_data_parallel_group_dict()
        self._broadcast_model()

    def _is_replicated(self, param):
        return getattr(param, "ds_status", None) is None

    def _broadcast_model(self):
        for _, p in self.module.named_parameters():
            if is_moe_param(p):
                if torch.is_tensor(p) and self._is_replicated(p):
                    dist.broadcast(
                        p.data,
                        groups._get_expert_broadcast_src_rank(p.group_name),
                        group=self.expert_data_parallel_group[p.group_name],
                    )
            elif torch.is_tensor(p) and self._is_replicated(p):
                dist.broadcast(p.data, groups._get_broadcast_src_rank(), group=self.seq_data_parallel_group)

    def _reduce_expert_gradients(self, dp_world_size):
        for p in self.module.parameters():
            if is_moe_param(p) and p.grad is not None:
                p.grad.div_(dp_world_size)
                dist.all_reduce(p.grad, group=self.expert_data_parallel_group[p.group_name])

    def _reduce_non_expert_gradients(self, dp_world_size):
        for p in self.module.parameters():
            if not is_moe_param(p) and p.grad is not None:
                p.grad.div_(dp_world_size)
                dist.all_reduce(p.grad, group=self.seq_data_parallel_group)
