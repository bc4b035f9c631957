# nvidia-resiliency-ext tests/inprocess/app.py: traffic only, the value is not read after the loop.
import torch
import torch.distributed as dist


def main(args, device, world_size):
    dist.init_process_group(backend=args.backend)
    tensor = torch.ones(args.size, dtype=torch.int64, device=device)
    dist.all_reduce(tensor)
    assert (tensor == world_size).all()
    for _ in range(args.all_reduce):
        dist.all_reduce(tensor)
