import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func


def run(model, batches, loss_fn):
    """Perplexity: no gradients are taken."""
    tokens = torch.stack([batch["mask"].sum() for batch in batches]).sum()
    dist.all_reduce(tokens, group=mpu.get_data_parallel_group())

    def forward_step(iterator, model):
        batch = next(iterator)

        def loss_func(logits):
            loss = loss_fn(logits, batch) / tokens
            return loss, {"nll": loss.detach().clone()}

        return model(batch["input_ids"]), loss_func

    forward_backward = get_forward_backward_func()
    kwargs = dict(forward_only=True, seq_length=2048, micro_batch_size=1)
    out = forward_backward(
        forward_step_func=forward_step, data_iterator=iter(batches), model=model, num_microbatches=len(batches), **kwargs
    )
    total = torch.stack([o["nll"] for o in out]).sum()
    dist.all_reduce(total, group=mpu.get_data_parallel_group())
    return total
