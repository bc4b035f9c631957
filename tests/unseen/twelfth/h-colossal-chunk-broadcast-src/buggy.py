"""Chunks of parameters; each is stored on one data parallel rank and broadcast on use."""
import torch
import torch.distributed as dist
from colossalai.context import ParallelMode
from colossalai.core import global_context as gpc
from colossalai.utils import get_current_device


class Chunk:
    def __init__(self, chunk_size, src_rank, dtype):
        self.size, self.utilized_size = chunk_size, 0
        self.src_rank = src_rank
        self.is_src_rank = gpc.get_local_rank(ParallelMode.DATA) == src_rank
        self.data = torch.empty(chunk_size, dtype=dtype, device=get_current_device())
        if not self.is_src_rank:
            self.data.storage().resize_(0)
        self.tensors_info = {}

    def append(self, tensor):
        end = self.utilized_size + tensor.numel()
        if self.is_src_rank:
            self.data[self.utilized_size:end].copy_(tensor.view(-1))
            tensor.data = self.data[self.utilized_size:end].view(tensor.shape)
        else:
            tensor.storage().resize_(0)
        self.tensors_info[tensor] = (self.utilized_size, end)
        self.utilized_size = end

    def release(self):
        if not self.is_src_rank:
            self.data.storage().resize_(0)

    def access(self):
        if not self.is_src_rank:
            self.data.storage().resize_(self.size)
        self.data.data = self.data.to(get_current_device())
        dist.broadcast(self.data, self.src_rank, group=gpc.get_group(ParallelMode.DATA))  # BUG: broadcast wants the global rank, src_rank is the rank in the data group
        for tensor, (offset, end) in self.tensors_info.items():
            tensor.data = self.data[offset:end].view(tensor.shape)


class ChunkManager:
    def __init__(self, chunk_size, dtype):
        self.chunk_size, self.dtype, self.chunks = chunk_size, dtype, []

    def new_chunk(self):
        # distribute the chunks over the data parallel ranks
        src_rank = len(self.chunks) % gpc.get_world_size(ParallelMode.DATA)
        self.chunks.append(Chunk(self.chunk_size, src_rank, self.dtype))
        return self.chunks[-1]
