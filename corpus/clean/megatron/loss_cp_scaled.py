"""Loss of a part of the sequence, times the context-parallel size, because the wrapper averages over data and context ranks together."""

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads


def loss_func(loss_mask, output_tensor):
    """Mean over the tokens of the whole sequence; the number of tokens is summed over the context ranks first."""
    losses = output_tensor.float().view(-1)
    loss_mask = loss_mask.view(-1).float()
    loss = torch.sum(losses * loss_mask)
    num_tokens = loss_mask.sum().detach()
    cp_size = parallel_state.get_context_parallel_world_size()
    if cp_size > 1:
        torch.distributed.all_reduce(num_tokens, group=parallel_state.get_context_parallel_group())
    scaled = loss / num_tokens * cp_size

    # Only for the log: the sum of the parts over context ranks, the mean over data ranks.
    reporting = torch.stack([loss.detach(), loss_mask.sum()])
    torch.distributed.all_reduce(reporting, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    return scaled, {"lm loss": reporting[0] / reporting[1]}


def wrap(model, config):
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=True, use_distributed_optimizer=True, average_in_collective=False
    )
    return DistributedDataParallel(config=config, ddp_config=ddp_config, module=model)


def train_step(model, optimizer, microbatches):
    model.zero_grad_buffer()
    optimizer.zero_grad()
    logged = []
    for index, batch in enumerate(microbatches):
        last = index == len(microbatches) - 1
        output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
        loss, log = loss_func(batch["loss_mask"], output)
        loss = loss / len(microbatches)
        if last:
            loss.backward()
        else:
            with model.no_sync():
                loss.backward()
        logged.append(log["lm loss"])
    finalize_model_grads([model])
    optimizer.step()
    return torch.stack(logged).mean()
