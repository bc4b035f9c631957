"""Mean loss over the sequence-parallel ranks that the model is trained on."""
import torch
import torch.distributed as dist


def sequence_loss(logits, labels, group):
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    count = (labels != -100).sum()
    total = torch.distributed.nn.functional.all_reduce(loss, group=group)
    dist.all_reduce(count, group=group)
    return total / count


def train_step(model, batch, group, optimizer):
    loss = sequence_loss(model(batch["ids"]), batch["labels"], group)
    loss.backward()
    optimizer.step()
