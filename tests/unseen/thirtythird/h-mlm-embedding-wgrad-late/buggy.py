"""End of a pipeline schedule with the weight gradient of the output layer put off.

Source: https://github.com/NVIDIA/Megatron-LM/issues/1012
Wrong: the data-parallel reduction is started before the deferred weight gradient is added to
main_grad; that part stays local to each data-parallel rank.
Repair: compute the deferred weight gradient first.
"""
import torch
import torch.distributed as dist


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module, dp_group):
        super().__init__()
        self.module, self.dp_group = module, dp_group
        self.handles = []

    def start_grad_sync(self, *unused):
        for p in self.module.parameters():
            p.main_grad.div_(self.dp_group.size())
            self.handles.append(dist.all_reduce(p.main_grad, group=self.dp_group, async_op=True))

    def finish_grad_sync(self):
        for handle in self.handles:
            handle.wait()
        self.handles.clear()


def finish_embedding_wgrad_compute(embedding_module):
    weight = embedding_module.output_layer.weight
    while embedding_module.embedding_activation_buffer:
        x = embedding_module.embedding_activation_buffer.pop(0)
        grad = embedding_module.grad_output_buffer.pop(0)
        weight.main_grad.addmm_(grad.t(), x)


def finish_schedule(config, model, embedding_module, no_sync_context):
    # all backward passes have run under no_sync
    if no_sync_context is not None:
        no_sync_context.__exit__(None, None, None)
        model.start_grad_sync()
    if config.defer_embedding_wgrad_compute:
        finish_embedding_wgrad_compute(embedding_module)  # BUG: its weight is already on its way
    model.finish_grad_sync()
