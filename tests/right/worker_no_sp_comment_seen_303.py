class Worker:
    # tensor_model_parallel_size and pipeline_model_parallel_size are 1 here, and no sequence_parallel

    def __init__(self, model, optimizer):
        if model.config.sequence_parallel:
            raise ValueError("no sequence parallelism")
        self.model, self.optimizer = model, optimizer

    def begin(self):
        self.model.zero_grad_buffer()
        self.model.config.finalize_model_grads_func = None

    def finish(self):
        self.model.finish_grad_sync()
        self.optimizer.step()
