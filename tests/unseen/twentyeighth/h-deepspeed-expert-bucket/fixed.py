"""Bucketed gradient averaging of a ZeRO stage-1 optimizer with mixture-of-experts layers."""
import torch
import torch.distributed as dist


def is_moe_param(param):
    return getattr(param, "group_name", None) is not None


class ReductionBucket:
    def __init__(self, capacity):
        self.capacity = capacity
        self.params = []
        self.elements = 0

    def fits(self, param):
        return self.elements + param.numel() <= self.capacity

    def add(self, param):
        self.params.append(param)
        self.elements += param.numel()

    def clear(self):
        self.params = []
        self.elements = 0


class ZeroGradReducer:
    """Averages gradients as backward produces them.

    A dense parameter exists on every data-parallel rank. An expert exists once in every
    expert-parallel group, hence on ``dp_size / ep_size`` ranks, and receives the tokens of
    all ranks of its expert-parallel group through the all-to-all of the layer.
    """

    def __init__(self, params, dp_group, expert_dp_groups, bucket_size=int(5e8)):
        self.dp_process_group = dp_group
        self.expert_dp_process_group = expert_dp_groups
        self.dense_bucket = ReductionBucket(bucket_size)
        self.expert_buckets = {name: ReductionBucket(bucket_size) for name in expert_dp_groups}
        self.params = [p for p in params if p.requires_grad]
        for p in self.params:
            p.register_post_accumulate_grad_hook(self._on_grad)

    def _bucket_of(self, param):
        if is_moe_param(param):
            return self.expert_buckets[param.group_name]
        return self.dense_bucket

    def _on_grad(self, param):
        bucket = self._bucket_of(param)
        if bucket.params and not bucket.fits(param):
            self._flush(bucket)
        bucket.add(param)

    def _flush(self, bucket):
        if not bucket.params:
            return
        grads = [p.grad for p in bucket.params]
        flat = torch._utils._flatten_dense_tensors(grads)
        first = bucket.params[0]
        if is_moe_param(first):
            self._average_expert(flat, first.group_name)
        else:
            self._average_dense(flat)
        for grad, reduced in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
            grad.copy_(reduced)
        bucket.clear()

    def _average_dense(self, flat):
        flat.div_(dist.get_world_size(group=self.dp_process_group))
        dist.all_reduce(flat, group=self.dp_process_group)

    def _average_expert(self, flat, name):
        group = self.expert_dp_process_group[name]
        flat.div_(dist.get_world_size(group=self.dp_process_group))
        dist.all_reduce(flat, group=group)

    def finish(self):
        self._flush(self.dense_bucket)
        for name in sorted(self.expert_buckets):
            self._flush(self.expert_buckets[name])


def train_batch(engine, reducer, optimizer, batch):
    loss = engine(batch["input_ids"], labels=batch["labels"])
    loss.backward()
    reducer.finish()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
