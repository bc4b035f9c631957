"""Dynamic micro-batches for PPO training from the replay buffer of each data rank."""
import torch
import torch.distributed as dist

from openrlhf.utils.seqlen_balancing import get_minimum_num_micro_batch_size, get_seqlen_balanced_partitions


class NaiveReplayBuffer:
    def __init__(self):
        self.items = []  # with partial rollouts the number of samples can differ between ranks

    def setup_dynamic_batch(self, strategy):
        args = strategy.args
        sample_lengths = [sample.total_length.item() for sample in self.items]

        dp_group = strategy.ds_device_mesh["dp"].get_group()
        dp_size = dist.get_world_size(group=dp_group)
        local_train_batch_size = args.train.batch_size // dp_size
        expected_num_steps = args.rollout.batch_size * args.rollout.n_samples_per_prompt // args.train.batch_size
        # a short buffer at episode boundaries must not be read past its end
        num_steps = min(expected_num_steps, len(sample_lengths) // local_train_batch_size)  # BUG: computed from the local buffer, so ranks can disagree on the number of steps

        # split by train_batch_size, sync num_microbatches across dp
        num_microbatches = []
        for i in range(num_steps):
            start, end = i * local_train_batch_size, (i + 1) * local_train_batch_size
            num_microbatches.append(
                get_minimum_num_micro_batch_size(sample_lengths[start:end], args.train.max_tokens_per_gpu, 1, 1)
            )
        num_microbatches = torch.tensor(num_microbatches, dtype=torch.int, device=torch.cuda.current_device())
        dist.all_reduce(num_microbatches, op=dist.ReduceOp.MAX, group=dp_group)

        self.dynamic_indices, self.dynamic_optimizer_step = [], []
        for i, num_mbs in enumerate(num_microbatches.tolist()):
            start, end = i * local_train_batch_size, (i + 1) * local_train_batch_size
            partitions = get_seqlen_balanced_partitions(sample_lengths[start:end], num_mbs, equal_size=False)
            self.dynamic_indices.extend([[k + start for k in partition] for partition in partitions])
            self.dynamic_optimizer_step.extend([0] * (num_mbs - 1) + [1])


def ppo_train(buffer, strategy, actor, training_step):
    buffer.setup_dynamic_batch(strategy)
    for indices, is_boundary in zip(buffer.dynamic_indices, buffer.dynamic_optimizer_step):
        training_step(actor, [buffer.items[i] for i in indices], is_boundary)  # DeepSpeed forward/backward/step
