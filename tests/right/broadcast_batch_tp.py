"""The first rank of each tp group reads the data; the others receive sizes, then tokens."""
import torch
import torch.distributed as dist


def src_of(tp_group):
    return dist.get_global_rank(tp_group, 0)


def get_batch(iterator, tp_group):
    src = src_of(tp_group)
    if dist.get_rank(tp_group) == 0:
        batch = next(iterator)
        tokens = batch["tokens"].cuda()
        size = torch.tensor(tokens.shape, device="cuda")
        dist.broadcast(size, src=src, group=tp_group)
        dist.broadcast(tokens, src=src, group=tp_group)
    else:
        size = torch.empty(2, dtype=torch.long, device="cuda")
        dist.broadcast(size, src=src, group=tp_group)
        tokens = torch.empty(size.tolist(), dtype=torch.long, device="cuda")
        dist.broadcast(tokens, src=src, group=tp_group)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def save(model, path, dp_group, tp_group):
    if dist.get_rank(dp_group) == 0:
        torch.save(model.state_dict(), f"{path}/tp{dist.get_rank(tp_group)}.pt")
    dist.barrier()


def load(model, path, tp_group):
    state = None
    if dist.get_rank() == 0:
        state = torch.load(f"{path}/config.pt")
    box = [state]
    dist.broadcast_object_list(box, src=0)
    model.configure(box[0])
    model.load_state_dict(torch.load(f"{path}/tp{dist.get_rank(tp_group)}.pt"))


def train(model, iterator, optimizer, tp_group, dp_group, steps, path):
    for step in range(steps):
        tokens, labels = get_batch(iterator, tp_group)
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        optimizer.step()
        optimizer.zero_grad()
        if step % 1000 == 0:
            save(model, path, dp_group, tp_group)
