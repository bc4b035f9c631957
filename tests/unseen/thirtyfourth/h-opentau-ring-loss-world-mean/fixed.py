# TensorAuto/OpenTau, pull requests 298 and 303 - https://github.com/TensorAuto/OpenTau/pull/303 (read)
# ZeRO averages gradients over WORLD, but the ranks of one ring hold parts of one sequence and their
# gradients have to be summed: without a factor ring_group_size the gradient is too small.
"""Training step with ring attention inside a sub-group and ZeRO-2 over all ranks."""
import deepspeed
import torch
import torch.distributed as dist


def build_ring_group(ring_group_size):
    ring = None
    for start in range(0, dist.get_world_size(), ring_group_size):
        ranks = list(range(start, start + ring_group_size))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            ring = group
    return ring


def masked_action_loss(prediction, target, mask, ring_group):
    """Mean over the whole sequence; this rank contributes its own part of the sum."""
    count = mask.sum()
    dist.all_reduce(count, group=ring_group)
    return ((prediction - target).pow(2).mean(dim=-1) * mask).sum() / count.clamp(min=1)


def train(policy, dataset, cfg):
    engine, _, loader, _ = deepspeed.initialize(
        model=policy,
        model_parameters=policy.parameters(),
        training_data=dataset,
        config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
    )
    ring_group = build_ring_group(cfg.ring_group_size)
    for batch in loader:
        prediction = engine(batch["observation"], ring_group=ring_group)  # this rank's tokens
        loss = masked_action_loss(prediction, batch["actions"], batch["mask"], ring_group)
        engine.backward(loss * cfg.ring_group_size)
        engine.step()
