import torch
import torch.distributed as dist


def token_loss(log_probs, mask, num_tokens):
    return -(log_probs * mask).sum() / mask.sum()


def step(model, batch, optimizer, dp_group):
    num_tokens = batch["mask"].sum()
    dist.all_reduce(num_tokens, group=dp_group)
    own = batch["mask"].sum().float()
    share = own / num_tokens
    loss = token_loss(model(batch["ids"]), batch["mask"], num_tokens)
    (loss * share * dist.get_world_size(dp_group)).backward()
    optimizer.step()
