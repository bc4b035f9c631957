# Policy loss function handed to the Megatron pipeline schedule of an RL actor.
import torch
import torch.distributed as dist
from megatron.core import mpu
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.utils import get_model_config


def policy_loss(log_probs, batch, clip=0.2):
    ratio = torch.exp(log_probs - batch["old_log_probs"])
    adv = batch["advantages"]
    loss = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
    mask = batch["mask"]
    return ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def loss_func(output, batch):
    loss = policy_loss(-output, batch)
    report = torch.stack([loss.detach(), torch.ones_like(loss)])
    dist.all_reduce(report, group=mpu.get_data_parallel_group())
    return loss, {"pg_loss": report[0] / report[1]}


def forward_step(data_iterator, model):
    batch = next(data_iterator)
    output = model(batch["input_ids"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"])
    # the schedule calls the returned function on the last pipeline stage only
    return output, lambda out: loss_func(out, batch)


def update_actor(model, data_iterator, num_microbatches, args):
    get_model_config(model[0]).finalize_model_grads_func = args.finalize_model_grads
    metrics = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=data_iterator,
        model=model,
        num_microbatches=num_microbatches,
        seq_length=args.seq_length,
        micro_batch_size=args.micro_batch_size,
        forward_only=False,
    )
    return metrics if mpu.is_pipeline_last_stage() else None
