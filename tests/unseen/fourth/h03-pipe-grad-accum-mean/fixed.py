"""Pipeline engine: gradients over micro-batches (deepspeed style)."""
import torch
import torch.distributed as dist


class PipelineEngine:
    def __init__(self, module, optimizer, config, grid):
        self.module, self.optimizer, self.grid = module, optimizer, grid
        self.micro_batches = config.gradient_accumulation_steps
        self.dp_group = grid.get_data_parallel_group()
        self.dp_world_size = dist.get_world_size(group=self.dp_group)
        self.stage_id = grid.get_stage_id()
        self.num_stages = grid.pipe_parallel_size
        self.loss_fn = module.loss_fn
        self.pipe_buffers = {"inputs": [None] * self.micro_batches, "outputs": [None] * self.micro_batches}

    def is_last_stage(self):
        return self.stage_id == self.num_stages - 1

    def _exec_forward_pass(self, buffer_id, labels):
        x = self.pipe_buffers["inputs"][buffer_id]
        outputs = self.module(x)
        if self.is_last_stage():
            self.loss = self.loss_fn(outputs, labels)
        self.pipe_buffers["outputs"][buffer_id] = outputs

    def _exec_backward_pass(self, buffer_id, grad):
        if self.is_last_stage():
            self.loss.backward()
        else:
            torch.autograd.backward(self.pipe_buffers["outputs"][buffer_id], grad)

    def _exec_reduce_grads(self):
        for param in self.module.parameters():
            if param.grad is None:
                continue
            param.grad.data.div_(self.dp_world_size * self.micro_batches)
            dist.all_reduce(param.grad.data, group=self.dp_group)

    def train_batch(self, data_iter, recv_grad):
        for buffer_id in range(self.micro_batches):
            x, labels = next(data_iter)
            self.pipe_buffers["inputs"][buffer_id] = x
            self._exec_forward_pass(buffer_id, labels)
            self._exec_backward_pass(buffer_id, recv_grad(buffer_id))
        self._exec_reduce_grads()
        self.optimizer.step()
        self.optimizer.zero_grad()
