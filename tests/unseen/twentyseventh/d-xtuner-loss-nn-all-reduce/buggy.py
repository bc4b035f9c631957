"""Loss of a tensor-parallel model whose last layers work on sequence chunks."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F


def chunked_loss(model, hidden_chunk, labels_chunk, tp_group):
    # hidden_chunk, labels_chunk: this tensor-parallel rank's part of the sequence
    logits = model.lm_head(model.norm(hidden_chunk))
    loss_sum = F.cross_entropy(
        logits.flatten(0, 1).float(), labels_chunk.flatten(), ignore_index=-100, reduction="sum"
    )
    num_tokens = (labels_chunk != -100).sum()
    dist.all_reduce(num_tokens, group=tp_group)
    total = dist_nn.all_reduce(loss_sum, group=tp_group)  # BUG: backward sums tp equal gradients
    return total / num_tokens


def mark_sequence_parallel(model):
    for name, module in model.named_modules():
        if name.endswith("norm") or name == "lm_head":
            for p in module.parameters():
                p.sequence_parallel = True


def sync_gradients(model, tp_group, dp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad, group=tp_group)
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)


def train_step(model, input_ids, labels_chunk, optimizer, tp_group, dp_group):
    hidden_chunk = model.decoder(input_ids)
    loss = chunked_loss(model, hidden_chunk, labels_chunk, tp_group)
    loss.backward()
    sync_gradients(model, tp_group, dp_group)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
