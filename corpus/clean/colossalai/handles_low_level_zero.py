"""Stage 1 of a partitioned optimizer: hooks fill buckets, full ones are reduced on another stream, each rank steps its part and gathers."""

import torch
import torch.distributed as dist


class LowLevelZero:
    def __init__(self, params, optim_cls, pg, bucket_size):
        self.pg, self.bucket_size = pg, bucket_size
        self.world, self.rank = dist.get_world_size(pg), dist.get_rank(pg)
        self.params = [p for p in params if p.requires_grad]
        self.shards = [self.shard_of(p.data.float()).clone() for p in self.params]
        self.optim = optim_cls(self.shards)
        self.comm_stream = torch.cuda.Stream()
        self.bucket, self.elements, self.reduced = [], 0, {}
        self.require_grad_sync = True
        for param in self.params:
            param.register_post_accumulate_grad_hook(self.add_to_bucket)

    def padded(self, tensor):
        flat = tensor.reshape(-1)
        pad = -flat.numel() % self.world
        return torch.nn.functional.pad(flat, (0, pad)) if pad else flat

    def shard_of(self, tensor):
        return self.padded(tensor).chunk(self.world)[self.rank]

    def add_to_bucket(self, param):
        if not self.require_grad_sync:
            return
        self.bucket.append(param)
        self.elements += param.numel()
        if self.elements >= self.bucket_size:
            self.run_reduction()

    def run_reduction(self):
        if not self.bucket:
            return
        self.comm_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.comm_stream):
            for param in self.bucket:
                flat = self.padded(param.grad.float()) / self.world
                received = torch.empty_like(flat.chunk(self.world)[0])
                dist.reduce_scatter_tensor(received, flat, group=self.pg)
                self.reduced[param] = received
                param.grad.record_stream(self.comm_stream)
                param.grad = None
        self.bucket, self.elements = [], 0

    def step(self):
        self.run_reduction()
        torch.cuda.current_stream().wait_stream(self.comm_stream)
        for param, shard in zip(self.params, self.shards):
            shard.grad = self.reduced.pop(param, None)
        self.optim.step()
        handles = []
        for param, shard in zip(self.params, self.shards):
            whole = torch.empty(shard.numel() * self.world, dtype=param.dtype, device=param.device)
            work = dist.all_gather_into_tensor(whole, shard.to(param.dtype), group=self.pg, async_op=True)
            handles.append((work, whole, param))
        for work, whole, param in handles:
            work.wait()
            param.data.copy_(whole[: param.numel()].view_as(param))
