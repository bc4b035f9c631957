"""Gradients are finished in the last round alone: the finaliser is back before it."""
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func


def train_step(model, optimizer, batches, config, forward_step):
    # TP with sequence-parallel norms
    finish = config.finalize_model_grads_func
    config.finalize_model_grads_func = None
    run = get_forward_backward_func()
    for i, batch in enumerate(batches):
        if i == len(batches) - 1:
            config.finalize_model_grads_func = finish
        run(forward_step_func=forward_step, data_iterator=batch, model=model, num_microbatches=1)
    # Nothing is left to wait for; a second call returns at once.
    model.finish_grad_sync()
    return optimizer.step()
