"""Token-mean loss of a Megatron engine with context parallelism (verl-project/verl#5983)."""
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def forward_backward_batch(model, batch, token_loss_fn):
    # batch: this context-parallel rank's part of its data rank's sequences
    batch_num_tokens = batch["loss_mask"].sum()
    dist.all_reduce(batch_num_tokens, group=mpu.get_data_parallel_group())  # BUG: misses the tokens of the other CP ranks
    token_loss = token_loss_fn(model(batch["input_ids"]), batch["labels"])
    loss = (token_loss * batch["loss_mask"]).sum() / batch_num_tokens
    loss = loss * mpu.get_data_parallel_world_size(with_context_parallel=True)
    loss.backward()
    finish_grad_sync(model)


def finish_grad_sync(model):
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)
