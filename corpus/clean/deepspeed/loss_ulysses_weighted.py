"""Sequence parallelism in a training step: shards of a sequence have different numbers of valid tokens, so their mean losses are weighted."""

import deepspeed
import torch
import torch.distributed.nn.functional
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF, UlyssesSPDataLoaderAdapter


def weighted_loss(loss, shift_labels, sp_group, sp_world_size):
    """The gather has a reduce-scatter as its backward, and the engine divides by the world, which contains the sequence ranks."""
    losses_per_rank = torch.distributed.nn.functional.all_gather(loss, group=sp_group)
    good_tokens = (shift_labels != -100).view(-1).sum()
    good_tokens_per_rank = torch.distributed.nn.functional.all_gather(good_tokens, group=sp_group)
    # A shard that is all prompt has a loss of NaN.
    total_loss = sum(
        losses_per_rank[rank] * good_tokens_per_rank[rank]
        for rank in range(sp_world_size)
        if good_tokens_per_rank[rank] > 0
    )
    return total_loss / sum(good_tokens_per_rank)


def main(args, model, dataset, ds_config):
    mpu = UlyssesSPAttentionHF.register_with_transformers(
        model_name_or_path=args.model,
        core_attn_implementation="sdpa",
        sequence_parallel_size=args.sp,
        micro_batch_size=1,
        seq_length=args.seq_length,
    )
    engine, _, _, _ = deepspeed.initialize(config=ds_config, model=model, model_parameters=model.parameters(), mpu=mpu)
    sp_group, sp_world_size = mpu.get_sequence_parallel_group(), mpu.get_sequence_parallel_world_size()
    sp_rank = mpu.get_sequence_parallel_rank()
    loader = UlyssesSPDataLoaderAdapter(
        dataset, sp_rank=sp_rank, sp_group=sp_group, sp_world_size=sp_world_size, device=model.device
    )
    for step, batch in enumerate(loader):
        outputs = engine(**{k: v.to(engine.device) for k, v in batch.items()})
        shift_labels = batch["shift_labels"]
        loss = model.module.loss_function(
            logits=outputs.logits, labels=None, shift_labels=shift_labels, vocab_size=model.config.vocab_size
        )
        loss = weighted_loss(loss, shift_labels, sp_group, sp_world_size)
        if sp_rank == 0:
            print(f"{step}: {loss.item():.4f}")
        engine.backward(loss)
        engine.step()
