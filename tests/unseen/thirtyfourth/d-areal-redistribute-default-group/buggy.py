# areal-project/AReaL, pull request 311 - https://github.com/areal-project/AReaL/pull/311 (read: title and description)
# Only data-parallel heads redistribute the rollout batch. The gather inside runs on the default group,
# which also contains the model-parallel ranks: they never join and training is stuck.
"""Balance a rollout batch over data-parallel heads, then hand it to their model-parallel ranks."""
import torch.distributed as dist


def all_gather_trajectories(data, group=None):
    out = [None] * dist.get_world_size(group)
    dist.all_gather_object(out, data, group=group)
    return out


def redistribute(data, group):
    """Each head gets an equal share of all trajectories."""
    gathered = all_gather_trajectories(data)  # BUG: default group, only heads are here
    flat = sorted((t for part in gathered for t in part), key=lambda t: -t["seqlen"])
    return flat[dist.get_rank(group)::dist.get_world_size(group)]


class DistRolloutCoordinator:
    def __init__(self, rollout_engine, train_engine):
        self.rollout_engine, self.train_engine = rollout_engine, train_engine

    def rollout_batch(self, data, workflow):
        engine = self.train_engine
        batch = None
        if engine.is_data_parallel_head():
            batch = self.rollout_engine.rollout_batch(data, workflow=workflow)
            batch = redistribute(batch, group=engine.data_parallel_group)
        box = [batch]
        dist.broadcast_object_list(
            box, src=engine.current_data_parallel_head(), group=engine.context_and_model_parallel_group
        )
        return box[0]
