import argparse
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def measure(params):
    """Norm of what is in .grad now, without clipping."""
    return nn.utils.clip_grad_norm_(params, max_norm=float("inf"), error_if_nonfinite=False)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clip", type=float, default=float("inf"))
    args = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    torch.manual_seed(53)
    ds = TensorDataset(torch.randn(5300, 20), torch.randn(5300, 1))
    net = nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 1)).cuda()
    params = list(net.parameters())
    opt = torch.optim.Adam(params, lr=1e-3)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=53, sampler=sampler)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        spread = torch.zeros((), device="cuda")
        for x, y in loader:
            opt.zero_grad()
            nn.functional.mse_loss(net(x.cuda()), y.cuda()).backward()
            mine = measure(params)
            for p in params:
                dist.all_reduce(p.grad)
                p.grad.div_(world)
            mean_norm = nn.utils.clip_grad_norm_(params, args.clip)
            opt.step()
            spread += mine / mean_norm
        print(f"rank {dist.get_rank()} epoch {epoch} local/mean norm ratio {spread.item() / len(loader):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
