"""1F1B schedule of one pipeline rank with data parallelism.

model.require_backward_grad_sync tells the gradient buckets to all-reduce in backward.

Source: https://github.com/huggingface/picotron/pull/5
"""


def train_step_pipeline_1f1b(model, comm, micro_batches, loss_fn, pp_rank, pp_size, dp_size):
    grad_acc = len(micro_batches)
    num_warmup = min(pp_size - pp_rank - 1, grad_acc)
    num_remaining = grad_acc - num_warmup
    requires_grad_sync = dp_size > 1
    inputs, outputs, it = [], [], iter(micro_batches)

    def forward_step():
        x = comm.recv_forward()
        out = model(x, next(it))
        if pp_rank == pp_size - 1:
            out = loss_fn(out) / grad_acc
        inputs.append(x)
        outputs.append(out)
        return out

    for _ in range(num_warmup):
        comm.send_forward(forward_step())

    if requires_grad_sync:
        model.require_backward_grad_sync = False
    for i in range(num_remaining):
        out = forward_step()
        grad = comm.send_forward_recv_backward(out)
        input_grad = model.backward(inputs.pop(0), outputs.pop(0), grad)  # BUG
        comm.send_backward(input_grad)

    for i in range(num_warmup):
        if requires_grad_sync:
            model.require_backward_grad_sync = i == num_warmup - 1
        grad = comm.recv_backward()
        input_grad = model.backward(inputs.pop(0), outputs.pop(0), grad)
        comm.send_backward(input_grad)
