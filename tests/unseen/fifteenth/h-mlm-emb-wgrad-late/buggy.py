# Reduced from Megatron-LM core/pipeline_parallel/schedules.py (NVIDIA/Megatron-LM issue 1012, read).
# defer_embedding_wgrad_compute puts the weight-gradient GEMMs of the output layer off until the
# pipeline has drained; grad_sync_func starts the data-parallel reduction of the buckets.
# What happens: the reduction of the embedding's bucket starts before the GEMMs have added to
# main_grad, what they add stays rank-local.
import torch
from megatron.core.pipeline_parallel.p2p_communication import recv_backward, send_backward
from megatron.core.utils import drain_embedding_wgrad_compute, get_attr_wrapped_model


def finish_embedding_wgrad_compute(config, embedding_module):
    if config.defer_embedding_wgrad_compute and embedding_module is not None:
        drain_embedding_wgrad_compute(
            config,
            embedding_module.embedding_activation_buffer,
            embedding_module.grad_output_buffer,
            embedding_module.output_layer.weight,
        )


def cooldown_and_finalize(
    config, model, input_tensors, output_tensors, send_shapes, recv_shapes, num_warmup_microbatches, backward_step
):
    """The tail of the 1F1B schedule; gradient sync has been off until here."""
    no_sync_context = config.no_sync_func()
    no_sync_context.__enter__()

    def enable_grad_sync():
        nonlocal no_sync_context
        if no_sync_context is not None:
            no_sync_context.__exit__(None, None, None)
            no_sync_context = None

    embedding_module = get_attr_wrapped_model(model, 'pre_process', return_model_obj=True)
    for i in range(num_warmup_microbatches):
        if i == num_warmup_microbatches - 1 and config.grad_sync_func is None:
            enable_grad_sync()
        input_tensor, output_tensor = input_tensors.pop(0), output_tensors.pop(0)
        output_tensor_grad = recv_backward(send_shapes, config)
        input_tensor_grad = backward_step(input_tensor, output_tensor, output_tensor_grad)
        send_backward(input_tensor_grad, recv_shapes, config)

    if no_sync_context is not None:
        enable_grad_sync()
        if config.grad_sync_func is not None:
            config.grad_sync_func(model.parameters())
    finish_embedding_wgrad_compute(config, embedding_module)  # BUG

    if config.finalize_model_grads_func is not None:
        config.finalize_model_grads_func([model])
