"""The other ranks come to the same collective in the other function."""
import torch.distributed as dist


class main_first:
    def __init__(self):
        self.main = dist.get_rank() == 0

    def __enter__(self):
        if self.main:
            return self
        dist.barrier()
        return self

    def __exit__(self, *exc):
        if not self.main:
            return False
        dist.barrier()
        return False


def prepare(build):
    with main_first():
        return build()
