# Ascend/pytorch test_options.py, test_hccl_shared_buffer.py, error_hccl_timeout.py: the second sum is
# for the sake of the communication (options, buffer names, time-outs); its value is never read,
# or is overwritten by fill_.
import torch
import torch.distributed as dist


def options(rank, world_size, input1):
    dist.init_process_group(backend="hccl", world_size=world_size, rank=rank)
    input1 = input1.npu()
    dist.all_reduce(input1)
    dist.all_reduce(input1)


def buffer_name(rank, world_size, input1, c2p):
    dist.init_process_group(backend="hccl", world_size=world_size, rank=rank)
    input1 = input1.npu()
    dist.all_reduce(input1)
    dist.all_reduce(input1)
    output = input1
    output.fill_(0)
    c2p.put((rank, output.cpu(), None))
