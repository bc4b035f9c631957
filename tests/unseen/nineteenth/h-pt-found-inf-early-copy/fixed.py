"""Gradient scaler for sharded parameters with CPU offload. pytorch/pytorch, pull request #115710."""
import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler


class ShardedGradScaler(GradScaler):
    def __init__(self, process_group, init_scale=2.0**16):
        super().__init__("cuda", init_scale=init_scale)
        self.process_group = process_group

    def _local_found_inf(self, optimizer):
        """One flag per device type; 1.0 if a gradient shard of this rank is not finite."""
        flags = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                bad = (~torch.isfinite(p.grad)).any().float()
                dev = p.grad.device
                flags[dev] = torch.maximum(flags[dev], bad) if dev in flags else bad
        return flags

    def sync_found_inf(self, optimizer):
        found_inf_per_device = self._local_found_inf(optimizer)
        copies = []
        works = []
        for found_inf in found_inf_per_device.values():
            if found_inf.device.type == "cpu":
                # the process group only reduces CUDA tensors
                on_cuda = found_inf.to("cuda")
                works.append(
                    dist.all_reduce(on_cuda, op=dist.ReduceOp.MAX, group=self.process_group, async_op=True)
                )
                copies.append((found_inf, on_cuda))
            else:
                works.append(
                    dist.all_reduce(found_inf, op=dist.ReduceOp.MAX, group=self.process_group, async_op=True)
                )
        for work in works:
            work.wait()
        for found_inf, on_cuda in copies:
            found_inf.copy_(on_cuda)
        return found_inf_per_device

    def should_skip(self, optimizer):
        return any(f.item() > 0 for f in self.sync_found_inf(optimizer).values())
