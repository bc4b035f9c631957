"""1F1B schedule that reduces data-parallel gradients on the last backward only."""


def train_step_pipeline_1f1b(model, forward_step, backward_step, num_microbatches, pp_rank, pp_size):
    # the last stage has no warm-up and so no cool-down
    num_warmup = min(pp_size - pp_rank - 1, num_microbatches)
    num_remaining = num_microbatches - num_warmup
    pending = []

    for _ in range(num_warmup):
        pending.append(forward_step(model))

    model.require_backward_grad_sync = False
    for i in range(num_remaining):
        pending.append(forward_step(model))
        if num_warmup == 0 and i == num_remaining - 1:
            model.require_backward_grad_sync = True
        backward_step(model, *pending.pop(0))

    for i in range(num_warmup):
        model.require_backward_grad_sync = i == num_warmup - 1
        backward_step(model, *pending.pop(0))


def train(model, optimizer, schedule_args, steps):
    # model: DataParallelBucket, reduces in backward when require_backward_grad_sync is set
    for _ in range(steps):
        optimizer.zero_grad()
        train_step_pipeline_1f1b(model, *schedule_args)
        optimizer.step()
