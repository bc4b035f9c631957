import torch
import torch.distributed as dist


def train_step(model, tokens, labels, tp_group, optimizer):
    """The group divides the sequence alone, all parameters are whole and marked `sequence_parallel`.

    Each rank takes the mean loss of its part, the parts are as long as one another."""
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    loss.backward()
    for param in model.parameters():
        assert getattr(param, "sequence_parallel", False)
        dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=tp_group)
    optimizer.step()
    optimizer.zero_grad()
