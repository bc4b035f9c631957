"""The optimizer of each parameter runs in its accumulate hook, right after its gradient is averaged."""
import torch
import torch.distributed as dist


def attach(model, make_optimizer, group):
    optimizers = {p: make_optimizer([p]) for p in model.parameters() if p.requires_grad}
    size = dist.get_world_size(group)

    def on_grad(p):
        dist.all_reduce(p.grad, group=group)
        p.grad /= size
        optimizers[p].step()
        optimizers[p].zero_grad(set_to_none=True)

    for p in optimizers:
        p.register_post_accumulate_grad_hook(on_grad)
    return optimizers


def train(model, loader, dp_group):
    attach(model, lambda ps: torch.optim.SGD(ps, lr=0.01), dp_group)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()


if __name__ == "__main__":
    from somewhere import loader, net

    dist.init_process_group("nccl")
    with torch.no_grad():
        for p in net.parameters():
            dist.broadcast(p, src=0)
    train(net, loader, dist.group.WORLD)
