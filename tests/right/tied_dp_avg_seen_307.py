import torch.distributed as dist


def sync_embedding(model, embedding_dp_group, tied_group):
    grad = model.token_embedding.weight.grad
    dist.all_reduce(grad, group=tied_group)
    # then over the copies of the stage
    dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=embedding_dp_group)
