"""The loss itself is summed in place, once its graph has been used."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader):
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    world = dist.get_world_size()
    history = []
    for x, y in loader:
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            dist.all_reduce(loss)
            loss /= world
            right = (logits.argmax(-1) == y).sum()
            seen = torch.tensor(y.numel(), device=right.device)
            dist.all_reduce(right)
            dist.all_reduce(seen)
        history.append((loss.item(), (right / seen).item()))
    return history


if __name__ == "__main__":
    from recipe import loader, net

    dist.init_process_group("nccl")
    print(train(net.cuda(), loader)[-1])
