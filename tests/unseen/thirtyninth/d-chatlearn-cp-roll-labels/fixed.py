"""Policy update with Megatron-Core and context parallelism."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def split_on_cp(x, cp_size, cp_rank):
    """[b, s] -> [b, s / cp]: chunks cp_rank and 2 * cp_size - 1 - cp_rank."""
    if cp_size == 1:
        return x
    chunks = x.chunk(2 * cp_size, dim=1)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=1)


def get_batch(data_iterator):
    data = next(data_iterator)
    input_ids = data["all_tokens"].cuda(non_blocking=True)
    loss_mask = data["all_token_loss_mask"].cuda(non_blocking=True).clone()
    loss_mask[:, -1] = 0
    position_ids = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids)

    cp_size = mpu.get_context_parallel_world_size()
    cp_rank = mpu.get_context_parallel_rank()
    labels = torch.roll(input_ids, shifts=-1, dims=1)
    input_ids = split_on_cp(input_ids, cp_size, cp_rank)
    labels = split_on_cp(labels, cp_size, cp_rank)
    return {
        "input_ids": input_ids,
        "labels": labels,
        "position_ids": split_on_cp(position_ids, cp_size, cp_rank),
        "loss_mask": split_on_cp(loss_mask, cp_size, cp_rank),
        "advantages": split_on_cp(data["advantages"].cuda(), cp_size, cp_rank),
        "old_logprobs": split_on_cp(data["old_logprobs"].cuda(), cp_size, cp_rank),
    }


def forward_step(data_iterator, model, clip_ratio=0.2):
    batch = get_batch(data_iterator)
    # token losses of the vocab-parallel head, [b, s / cp]
    nll = model(batch["input_ids"], batch["position_ids"], None, labels=batch["labels"])
    ratio = torch.exp(-nll - batch["old_logprobs"])
    surrogate = torch.minimum(
        ratio * batch["advantages"], ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * batch["advantages"]
    )
    loss = -(surrogate * batch["loss_mask"]).sum()
    num_tokens = batch["loss_mask"].sum().int()
    report = torch.stack([loss.detach(), num_tokens.float()])
    dist.all_reduce(report, group=mpu.get_data_parallel_group(with_context_parallel=True))
    # calculate_per_token_loss is on: gradients are summed and divided by the global count
    return loss, num_tokens, {"policy_loss": report[0] / report[1]}
