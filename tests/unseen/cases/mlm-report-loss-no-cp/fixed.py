"""Loss function of a pretraining script with context parallelism."""
import torch
from megatron.core import parallel_state


def loss_func(loss_mask, output_tensor):
    # output_tensor, loss_mask: this rank's part of the sequence
    losses = output_tensor.float().view(-1)
    loss_mask = loss_mask.view(-1).float()
    loss = torch.stack([(losses * loss_mask).sum(), loss_mask.sum()])
    if parallel_state.get_context_parallel_world_size() > 1:
        torch.distributed.all_reduce(
            loss, group=parallel_state.get_context_parallel_group()
        )
    return loss[0] / loss[1]


def evaluate(model, data_iterator):
    total = torch.zeros((), device="cuda")
    for batch in data_iterator:
        with torch.no_grad():
            output = model(batch["tokens"], batch["position_ids"], labels=batch["labels"])
        total += loss_func(batch["loss_mask"], output)
    return total
