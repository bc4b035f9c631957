import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func


def make_loss(loss_fn, n):
    def scaled(logits, batch):
        return loss_fn(logits, batch) * n

    return scaled


def train(model, optimizer, batches, loss_fn):
    tokens = torch.stack([batch["mask"].sum() for batch in batches]).sum()
    dist.all_reduce(tokens, group=mpu.get_data_parallel_group())
    loss_fn = make_loss(loss_fn, len(batches))

    def forward_step(iterator, model):
        batch = next(iterator)

        def loss_func(logits):
            loss = loss_fn(logits, batch)
            return loss / tokens * mpu.get_data_parallel_world_size(), {}

        return model(batch["input_ids"]), loss_func

    get_forward_backward_func()(
        forward_step_func=forward_step, data_iterator=iter(batches), model=model, num_microbatches=len(batches)
    )
    optimizer.step()
