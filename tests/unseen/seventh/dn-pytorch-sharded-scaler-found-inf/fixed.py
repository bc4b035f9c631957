"""Gradient scaler for sharded gradients.

Source: https://github.com/pytorch/pytorch/pull/115710
"""
import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler


class ShardedGradScaler(GradScaler):
    def __init__(self, *args, process_group=dist.group.WORLD, **kwargs):
        super().__init__(*args, **kwargs)
        self.process_group = process_group

    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        self._share_found_inf(self._per_optimizer_states[id(optimizer)])

    def _share_found_inf(self, optimizer_state):
        # every rank checked its own shard of the gradients
        futures, copies = [], []
        for v in optimizer_state["found_inf_per_device"].values():
            if v.device.type == "cpu":
                v_on_cuda = v.cuda()
                futures.append(
                    dist.all_reduce(v_on_cuda, async_op=True, group=self.process_group).get_future()
                )
                copies.append((v, v_on_cuda))
            else:
                futures.append(
                    dist.all_reduce(v, async_op=True, group=self.process_group).get_future()
                )
        if futures:
            torch.futures.wait_all(futures)
        for v, v_on_cuda in copies:
            v.copy_(v_on_cuda.cpu())
