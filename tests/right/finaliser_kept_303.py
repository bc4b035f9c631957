"""A train step in three parts: the finaliser is taken out between them and called by another name at the end."""
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func


class Worker:
    # model: sequence parallel over TP, the norms see a part of the sequence

    def __init__(self, model, optimizer, forward_step):
        self.model, self.optimizer, self.forward_step = model, optimizer, forward_step
        self.run = get_forward_backward_func()

    def begin(self):
        self.model.zero_grad_buffer()
        self.whole = self.model.config.finalize_model_grads_func
        self.model.config.finalize_model_grads_func = None

    def microbatch(self, batch):
        return self.run(forward_step_func=self.forward_step, data_iterator=batch, model=self.model, num_microbatches=1)

    def finish(self):
        self.whole([self.model], None)
        self.model.config.finalize_model_grads_func = self.whole
        return self.optimizer.step()

    def abort(self):
        # What is in flight is waited for and thrown away.
        self.model.finish_grad_sync()
        self.model.zero_grad_buffer()
