"""Loss function of the Megatron trainer: what is reported is summed over the ranks."""
# modelscope/ms-swift PR 9380: the report was summed over the data-parallel ranks only; with CP each rank has a part of the sequence.
import torch
import torch.distributed as dist
from megatron.core import mpu


def get_batch_on_this_cp_rank(batch):
    cp_size, cp_rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    for key, val in batch.items():
        val = val.view(val.shape[0], 2 * cp_size, val.shape[1] // (2 * cp_size))
        index = torch.tensor([cp_rank, 2 * cp_size - cp_rank - 1], device=val.device)
        val = val.index_select(1, index)
        batch[key] = val.view(val.shape[0], -1)
    return batch


def loss_func(output_tensor, *, loss_mask):
    losses = output_tensor.float()
    loss = torch.sum(losses.view(-1) * loss_mask.view(-1))
    num_tokens = loss_mask.sum().clone().detach().to(torch.int)
    reporting_loss = torch.cat([loss.clone().detach().view(1), num_tokens.view(1).float()])
    dist.all_reduce(reporting_loss, group=mpu.get_data_parallel_group(with_context_parallel=True))
    return loss, num_tokens, {"loss": (reporting_loss[0], reporting_loss[1])}


def forward_step(data_iterator, model):
    batch = get_batch_on_this_cp_rank(next(data_iterator))
    output_tensor = model(batch["input_ids"], batch["position_ids"], labels=batch["labels"])
    return loss_func(output_tensor, loss_mask=batch["loss_mask"].float())


def aggregate_metrics(metrics, logs):
    for key, (total, count) in metrics.items():
        if count.item() > 0:
            logs[key] = (total / count).item()
    return logs


def finalize_model_grads(model, num_tokens):
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    dist.all_reduce(num_tokens, group=group)
    for param in model.parameters():
        dist.all_reduce(param.main_grad, group=group)
        param.main_grad.div_(num_tokens)
