# Ascend/pytorch test_sub_comm_derivation.py: all_reduce on an explicit clone, on purpose, to have the parent
# communicator made; the original must stay as it is for the all_reduce under test.
import torch
import torch.distributed as dist


def process(rank, shared_tensors, world_size, c2p):
    dist.init_process_group(backend="hccl", world_size=world_size, rank=rank)
    xs = [shared_tensors[rank].to(f"npu:{rank}")]
    sub_pg = dist.new_group(backend="hccl", ranks=list(range(world_size)))
    global_tensor = xs[0].clone()
    dist.all_reduce(global_tensor, op=dist.ReduceOp.SUM)
    dist.all_reduce(xs[0], group=sub_pg, op=dist.ReduceOp.SUM)
    c2p.put((rank, xs[0].to("cpu")))
