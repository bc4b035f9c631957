"""MoE training step with the balance loss attached to the router scores."""
# thread: NVIDIA-NeMo/Automodel#1412
import torch
import torch.distributed as dist


class MoEAuxLossAutoScaler(torch.autograd.Function):
    main_loss_backward_scale = 1.0

    @staticmethod
    def forward(ctx, scores, aux_loss):
        ctx.save_for_backward(aux_loss)
        return scores

    @staticmethod
    def backward(ctx, grad):
        (aux_loss,) = ctx.saved_tensors
        return grad, torch.ones_like(aux_loss) * MoEAuxLossAutoScaler.main_loss_backward_scale


def gate(x, weight, topk, coeff, dp_group):
    probs = torch.softmax(x @ weight.t(), dim=-1)
    scores, index = probs.topk(topk, dim=-1)
    counts = torch.bincount(index.flatten(), minlength=probs.size(1)).float()
    total = torch.tensor(float(x.size(0)), device=x.device)
    dist.all_reduce(counts, group=dp_group)
    dist.all_reduce(total, group=dp_group)
    # this rank's term of the balance loss of the global batch
    aux = coeff * probs.size(1) * torch.sum(counts / (total * topk) * probs.sum(dim=0) / total)
    return MoEAuxLossAutoScaler.apply(scores, aux), index


def train_step(model, batch, loss_sum_fn, num_label_tokens, dp_group, optimizer):
    # model: fully_shard over dp_group (mean of gradients); num_label_tokens: of all ranks
    dp_size = dist.get_world_size(dp_group)
    MoEAuxLossAutoScaler.main_loss_backward_scale = 1.0  # BUG: the mean of fully_shard shrinks it by dp_size
    loss = loss_sum_fn(model(batch["input_ids"]), batch["labels"]) * dp_size / num_label_tokens
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
