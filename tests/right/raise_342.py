"""accumulation is refused on the side that copies."""
import torch.distributed as dist


class Shard:
    def reduce_gradients(self, accumulate: bool):
        if self.size == 1:
            if accumulate:
                raise NotImplementedError("accumulation without sharding")
            self.grad_shard.copy_(self.grad_buffer)
            return
        dist.reduce_scatter_tensor(self.scratch, self.grad_buffer, group=self.group)
        if accumulate:
            self.grad_shard.add_(self.scratch)
        else:
            self.grad_shard.copy_(self.scratch)
