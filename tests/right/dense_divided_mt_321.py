# Right: both kinds are summed and divided by the size of dp, the second in place by apex multi_tensor_scale.
import torch
import torch.distributed as dist
import amp_C
from apex.multi_tensor_apply import multi_tensor_applier


def finish(model, dp_group, expert_dp_group):
    overflow = torch.zeros(1, dtype=torch.int, device="cuda")
    for name, param in model.named_parameters():
        if "experts" in name:
            dist.all_reduce(param.grad, group=expert_dp_group)
            param.grad.div_(dp_group.size())
        else:
            dist.all_reduce(param.grad, group=dp_group)
            multi_tensor_applier(amp_C.multi_tensor_scale, overflow, [[param.grad], [param.grad]], 1.0 / dp_group.size())
