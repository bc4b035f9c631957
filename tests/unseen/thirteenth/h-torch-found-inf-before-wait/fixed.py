"""Gradient scaler of FSDP: all ranks agree on whether a gradient overflowed.

Source: pytorch/pytorch PR #115710.
"""
import torch
import torch.distributed as dist
from torch.cuda.amp.grad_scaler import GradScaler, OptState


class ShardedGradScaler(GradScaler):
    def __init__(self, process_group=dist.group.WORLD, **kwargs):
        super().__init__(**kwargs)
        self.process_group = process_group

    def unscale_(self, optimizer):
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        optimizer_state = self._per_optimizer_states[id(optimizer)]
        if optimizer_state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called since the last update().")
        inv_scale = self._scale.double().reciprocal().float()
        found_inf = torch.full((1,), 0.0, dtype=torch.float32, device=self._scale.device)
        optimizer_state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, found_inf, True)
        optimizer_state["stage"] = OptState.UNSCALED

        # gradients are sharded, so an inf on one rank has to reach all ranks
        future_handles, found_inf_pairs = [], []
        for v in optimizer_state["found_inf_per_device"].values():
            if v.device.type == "cpu":
                v_on_cuda = v.cuda()
                future_handles.append(
                    dist.all_reduce(v_on_cuda, async_op=True, group=self.process_group).get_future()
                )
                found_inf_pairs.append((v, v_on_cuda))
            else:
                future_handles.append(dist.all_reduce(v, async_op=True, group=self.process_group).get_future())
        if future_handles:
            torch.futures.wait_all(future_handles)
        for v, v_on_cuda in found_inf_pairs:
            v.copy_(v_on_cuda.cpu())
