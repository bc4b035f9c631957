"""Token-weighted loss with sequence parallelism under FSDP."""
import torch
import torch.distributed as dist


def mean_global_loss(loss, labels, parallel_state):
    # loss: mean over this rank's tokens (its data samples, its part of the sequence)
    num_tokens = (labels != -100).sum()
    length_in_batch = num_tokens.clone()
    dist.all_reduce(length_in_batch, group=parallel_state.fsdp_group)  # data x sequence ranks
    return loss * num_tokens / length_in_batch * parallel_state.fsdp_size


def train_step(model, micro_batches, parallel_state, optimizer):
    # model: fully_shard over parallel_state.fsdp_mesh, gradients are averaged over it
    for batch in micro_batches:
        loss = model(batch["input_ids"], labels=batch["labels"]).loss
        loss = mean_global_loss(loss, batch["labels"], parallel_state) / len(micro_batches)
        loss.backward()
    optimizer.step()
