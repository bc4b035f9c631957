"""What ends a step is a lambda that is made first and called last."""
import torch
import torch.distributed as dist


def train(model, loader, optimizer, group):
    params = [p for p in model.parameters() if p.requires_grad]
    sync = lambda: [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group) for p in params]
    clip = lambda: torch.nn.utils.clip_grad_norm_(params, 1.0)
    ending = {"sync": sync, "clip": clip, "step": optimizer.step, "clear": optimizer.zero_grad}
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        for name in ("sync", "clip", "step", "clear"):
            ending[name]()


def main(net, loader):
    dist.init_process_group("nccl")
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    train(net, loader, torch.optim.AdamW(net.parameters()), dist.group.WORLD)
