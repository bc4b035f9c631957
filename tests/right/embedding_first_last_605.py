import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


class Lang:
    def setup(self, w):
        if mpu.is_pipeline_first_stage():
            self.first(w)
        if mpu.is_pipeline_last_stage():
            w.data.zero_()
            self.share(w)

    def first(self, w):
        dist.all_reduce(w.data, group=mpu.get_embedding_group())

    def share(self, w):
        dist.all_reduce(w.data, group=mpu.get_embedding_group())
