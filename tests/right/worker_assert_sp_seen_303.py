class Worker:
    def begin(self):
        config = self.model.config
        if config.sequence_parallel or config.qk_layernorm or config.pipeline_model_parallel_size > 1:
            raise NotImplementedError("this loop reduces over data-parallel ranks only")
        self.model.zero_grad_buffer()
        config.finalize_model_grads_func = None

    def finish(self):
        self.model.finish_grad_sync()
        self.optimizer.step()
