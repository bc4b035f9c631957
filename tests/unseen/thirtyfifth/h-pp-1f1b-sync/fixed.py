"""1F1B schedule with data-parallel gradient reduction on the last backward."""
# thread: huggingface/picotron#5
import torch
import torch.distributed as dist
from picotron.pipeline_parallel import recv_backward, recv_forward, send_backward, send_forward


class DataParallel(torch.nn.Module):
    def __init__(self, module, dp_group):
        super().__init__()
        self.module, self.dp_group, self.require_backward_grad_sync = module, dp_group, True
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self._sync)

    def _sync(self, p):
        if self.require_backward_grad_sync:
            p.grad.div_(dist.get_world_size(self.dp_group))
            dist.all_reduce(p.grad, group=self.dp_group)

    def forward(self, *args):
        return self.module(*args)


def train_step_1f1b(model, stage, num_stages, batches):
    warmup = min(num_stages - stage - 1, len(batches))
    steady = len(batches) - warmup
    model.require_backward_grad_sync = False
    queue, it = [], iter(batches)

    def forward():
        x = recv_forward()
        y = model(x, next(it))
        send_forward(y)
        queue.append((x, y))

    def backward():
        x, y = queue.pop(0)
        torch.autograd.backward(y, grad_tensors=recv_backward())
        send_backward(None if x is None else x.grad)

    for _ in range(warmup):
        forward()
    for i in range(steady):
        forward()
        model.require_backward_grad_sync = warmup == 0 and i == steady - 1
        backward()
    for i in range(warmup):
        model.require_backward_grad_sync = i == warmup - 1
        backward()
