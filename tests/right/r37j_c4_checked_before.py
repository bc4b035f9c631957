import torch
import torch.distributed as dist


def any_rank(flag):
    t = torch.tensor([float(flag)], device="cuda")
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return bool(t.item())


def reduce_and_step(flat, param, opt, scaler_state):
    world = dist.get_world_size()
    out = flat.new_empty(flat.numel() // world)
    dist.reduce_scatter_tensor(out, flat)
    overflow = not bool(torch.isfinite(out).all())
    overflow = any_rank(overflow)
    if overflow:
        scaler_state["scale"] /= 2
        return
    param.grad = out / world
    opt.step()
