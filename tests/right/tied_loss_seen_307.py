import torch.distributed as dist


def log_tied(model, tied_group, log):
    """Shows how far the gradients of both uses are from their mean."""
    mean = model.token_embedding.weight.grad.clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=tied_group)
    log((model.token_embedding.weight.grad - mean).norm().item())


def sync_tied_embedding(model, tied_group):
    dist.all_reduce(model.token_embedding.weight.grad, group=tied_group)
