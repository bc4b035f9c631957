"""Validation loop of the SFT trainer (model wrapped with FSDP2)."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn import CrossEntropyLoss

from prime_rl.trainer.sft.data import setup_dataloader, setup_dataset


def setup_model(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def compute_loss(model, micro_batch):
    ce_loss = CrossEntropyLoss(reduction="none")
    logits = model(micro_batch["input_ids"].to("cuda"), position_ids=micro_batch["position_ids"].to("cuda"))
    target_ids, loss_mask = micro_batch["target_ids"].to("cuda"), micro_batch["loss_mask"].to("cuda")
    token_loss = ce_loss(logits.flatten(0, 1), target_ids.flatten()).view_as(target_ids)
    return token_loss[loss_mask].sum(), loss_mask.sum(dtype=torch.int64)


def run_eval_loop(model, data_iter, dp_group):
    """Token-weighted global mean loss."""
    total_loss_sum = torch.tensor(0.0, device="cuda")
    total_token_count = torch.tensor(0, dtype=torch.int64, device="cuda")
    with torch.no_grad():
        for micro_batch in data_iter:  # BUG: packed batches per rank differ in number, but each forward is a collective
            loss_sum, token_count = compute_loss(model, micro_batch)
            total_loss_sum += loss_sum
            total_token_count += token_count
    dist.all_reduce(total_loss_sum, op=dist.ReduceOp.SUM, group=dp_group)
    dist.all_reduce(total_token_count, op=dist.ReduceOp.SUM, group=dp_group)
    return (total_loss_sum / total_token_count).item()


def run_validation(model, tokenizer, config, dp_group):
    # each data rank takes every dp-th document, once, and packs them up to seq_len
    val_dataset = setup_dataset(tokenizer, config.val.data, max_epochs=1)
    val_dataloader = setup_dataloader(val_dataset, config.val.data)
    return run_eval_loop(model, val_dataloader, dp_group)
