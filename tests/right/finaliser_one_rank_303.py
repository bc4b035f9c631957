"""Data parallelism alone: the model's own reduction is all there is to do."""
from megatron.core import parallel_state


class Worker:
    def __init__(self, model, optimizer):
        assert parallel_state.get_tensor_model_parallel_world_size() == 1
        assert parallel_state.get_pipeline_model_parallel_world_size() == 1
        self.model, self.optimizer = model, optimizer

    def begin(self):
        self.model.config.finalize_model_grads_func = None
        self.model.zero_grad_buffer()

    def finish(self):
        self.model.finish_grad_sync()
        return self.optimizer.step()
