# PrimeIntellect-ai/prime-rl pull request 2636 (commit 3f5ee350)
"""Validation of a supervised fine-tuning run under FSDP2."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def setup_model(model):
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def compute_loss(model, micro_batch):
    input_ids = micro_batch["input_ids"].to("cuda")
    target_ids = micro_batch["target_ids"].to("cuda")
    loss_mask = micro_batch["loss_mask"].to("cuda")
    logits = model(input_ids).float()
    loss = F.cross_entropy(logits.flatten(0, 1), target_ids.flatten(), reduction="none")
    loss_mask = loss_mask.flatten()
    return (loss * loss_mask).sum(), loss_mask.sum()


def run_validation(model, val_dataloader):
    # val_dataloader packs documents of this rank into batches of variable length
    model.eval()
    total_loss_sum = torch.tensor(0.0, device="cuda")
    total_token_count = torch.tensor(0, dtype=torch.int64, device="cuda")
    data_iter = iter(val_dataloader)
    with torch.no_grad():
        while True:
            micro_batch = next(data_iter, None)
            has_data = torch.tensor(micro_batch is not None, dtype=torch.int32, device="cuda")
            dist.all_reduce(has_data, op=dist.ReduceOp.MIN)
            if has_data.item() == 0:
                break
            loss_sum, token_count = compute_loss(model, micro_batch)
            total_loss_sum += loss_sum
            total_token_count += token_count.to(torch.int64)
    dist.all_reduce(total_loss_sum)
    dist.all_reduce(total_token_count)
    model.train()
    return (total_loss_sum / total_token_count.clamp(min=1)).item()
