"""A script with data parallelism alone: `dp_group` is the default group under another name."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Env:
    def __init__(self):
        dist.init_process_group("nccl")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        # no other kind of parallelism: data-parallel ranks are all ranks
        self.dp_group = dist.group.WORLD
        self.dp_size = self.world


def mean_gradients(env, params):
    for p in params:
        if p.grad is not None:
            p.grad.div_(env.world)
            dist.all_reduce(p.grad, group=env.dp_group)


def global_tokens(env, labels):
    n = (labels != -100).sum()
    dist.all_reduce(n)
    return n


def train(env, model, loader, optimizer):
    for tokens, labels in loader:
        n = global_tokens(env, labels)
        logits = model(tokens.cuda())
        nll = F.cross_entropy(logits.flatten(0, 1), labels.cuda().flatten(), ignore_index=-100, reduction="sum")
        loss = nll * env.dp_size / n
        loss.backward()
        mean_gradients(env, model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        shown = nll.detach() / n
        dist.all_reduce(shown, group=env.dp_group)
        if env.rank == 0:
            print(shown.item())


if __name__ == "__main__":
    from recipe import loader, net

    env = Env()
    train(env, net.cuda(), loader, torch.optim.AdamW(net.parameters()))
