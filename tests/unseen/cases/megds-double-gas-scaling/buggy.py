"""Forward and backward without pipelining, with DeepSpeed's engine doing the backward."""
# microsoft/Megatron-DeepSpeed PR 42: the loss is divided by the number of micro-batches here, and again by engine.backward.
import deepspeed
import torch
from megatron import get_args, get_num_microbatches, mpu


def loss_func(loss_mask, output_tensor):
    losses = output_tensor.float()
    loss_mask = loss_mask.view(-1).float()
    loss = torch.sum(losses.view(-1) * loss_mask) / loss_mask.sum()
    return loss


def forward_step(data_iterator, model):
    tokens, labels, loss_mask, attention_mask, position_ids = next(data_iterator)
    output_tensor = model(tokens, position_ids, attention_mask, labels=labels)
    loss = loss_func(loss_mask, output_tensor)
    output_tensor = loss / get_num_microbatches()  # BUG: engine.backward divides by gradient_accumulation_steps too
    return output_tensor, loss


def backward_step(model, output_tensor):
    model.backward(output_tensor)


def forward_backward_no_pipelining(data_iterator, model):
    losses = []
    for i in range(get_num_microbatches()):
        output_tensor, loss = forward_step(data_iterator, model)
        losses.append(loss.detach())
        backward_step(model, output_tensor)
        model.step()
    return losses


def setup_model_and_optimizer(model, optimizer):
    args = get_args()
    config = {
        "train_micro_batch_size_per_gpu": args.micro_batch_size,
        "gradient_accumulation_steps": get_num_microbatches(),
        "zero_optimization": {"stage": args.zero_stage},
    }
    model, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=optimizer, args=args, config=config, mpu=mpu
    )
    return model, optimizer


def train(data_iterator, model, optimizer):
    model, optimizer = setup_model_and_optimizer(model, optimizer)
    args = get_args()
    for _ in range(args.train_iters):
        losses = forward_backward_no_pipelining(data_iterator, model)
        print(sum(losses) / len(losses))
