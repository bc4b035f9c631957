"""ZeRO-0 gradient reduction with Ulysses sequence parallelism."""
from deepspeed import comm as dist
from deepspeed.utils import groups


class DeepSpeedEngine:
    def __init__(self, module, sequence_parallel_size):
        self.module = module
        self.sequence_parallel_size = sequence_parallel_size

    def compute_loss(self, token_loss, num_sequence_tokens):
        # token_loss: this rank's part of the sequence; the shares of the SP ranks add up to the mean
        return token_loss.sum() / num_sequence_tokens

    def allreduce_gradients(self):
        group = groups._get_sequence_data_parallel_group()
        dp_world_size = dist.get_world_size(group) / float(self.sequence_parallel_size)
        for p in self.module.parameters():
            if p.grad is not None:
                p.grad.div_(dp_world_size)
                dist.all_reduce(p.grad, group=group)

    def train_step(self, token_loss, num_sequence_tokens, optimizer):
        self.compute_loss(token_loss, num_sequence_tokens).backward()
        self.allreduce_gradients()
        optimizer.step()
