import torch.distributed as dist


def sync_tied_embedding(model, tied_group):
    grad = model.token_embedding.weight.grad
    dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=tied_group)
    grad.mul_(tied_group.size())
