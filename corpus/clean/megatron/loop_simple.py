"""A small training loop on the framework's core: wrapped model, its own schedule, finaliser in the configuration, loss shown by the last stage."""

from functools import partial

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.utils import get_model_config


def loss_func(loss_mask, output_tensor):
    losses = output_tensor.float()
    loss_mask = loss_mask.view(-1).float()
    loss = torch.sum(losses.view(-1) * loss_mask) / loss_mask.sum()
    averaged = loss.detach().clone()
    torch.distributed.all_reduce(averaged, group=parallel_state.get_data_parallel_group())
    averaged /= parallel_state.get_data_parallel_world_size()
    return loss, {"lm loss": averaged}


def forward_step(data_iterator, model):
    batch = next(data_iterator)
    batch = {key: value.cuda(non_blocking=True) for key, value in batch.items()}
    output = model(batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"])
    return output, partial(loss_func, batch["loss_mask"])


def train(model_provider, train_iterator, iterations):
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2, pipeline_model_parallel_size=1)
    tensor_parallel.model_parallel_cuda_manual_seed(123)
    model = model_provider().cuda()
    config = get_model_config(model)
    model = DistributedDataParallel(config=config, ddp_config=DistributedDataParallelConfig(), module=model)
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-4, clip_grad=1.0), [model])
    forward_backward = get_forward_backward_func()
    for step in range(iterations):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = forward_backward(
            forward_step_func=forward_step,
            data_iterator=train_iterator,
            model=model,
            num_microbatches=4,
            seq_length=2048,
            micro_batch_size=2,
            decoder_seq_length=2048,
            forward_only=False,
        )
        optimizer.step()
        if losses and torch.distributed.get_rank() == torch.distributed.get_world_size() - 1:
            print(f"{step}: {torch.stack([one['lm loss'] for one in losses]).mean().item():.4f}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
