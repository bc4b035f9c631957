"""Value head of a Megatron critic."""
import torch
from megatron.core import tensor_parallel


class LinearForLastLayer(torch.nn.Linear):
    """Replaces the output layer; the weight is the same on every tensor-parallel rank."""

    def __init__(self, input_size, output_size, *, config, bias=False):
        super().__init__(in_features=input_size, out_features=output_size, bias=bias)  # BUG
        self.sequence_parallel = config.sequence_parallel

    def forward(self, input_, weight=None, runtime_gather_output=None):
        # [s/tp, b, h] with sequence parallelism
        logits = super().forward(input_).float()
        if self.sequence_parallel:
            logits = tensor_parallel.gather_from_sequence_parallel_region(
                logits, tensor_parallel_output_grad=False
            )
        return logits, None


def make_value_model(model, tf_config):
    if model.post_process:
        model.output_layer = LinearForLastLayer(tf_config.hidden_size, 1, config=tf_config)
    return model


def value_loss(values, returns, mask, num_tokens):
    # the same on every tensor-parallel rank
    return 0.5 * ((values.squeeze(-1) - returns) ** 2 * mask).sum() / num_tokens
