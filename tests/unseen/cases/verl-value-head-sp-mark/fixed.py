"""Critic: the language-model head is replaced by a replicated linear with one output."""
# verl LinearForLastLayer: without the mark the value head's gradient is that of this rank's tokens only under SP.
import torch
from megatron.core import tensor_parallel
from megatron.core.transformer import TransformerConfig


class LinearForLastLayer(torch.nn.Linear):
    def __init__(self, input_size, output_size, *, config: TransformerConfig, bias: bool = True):
        super().__init__(in_features=input_size, out_features=output_size, bias=bias)
        self.sequence_parallel = config.sequence_parallel
        self.config = config
        if self.sequence_parallel:
            setattr(self.weight, "sequence_parallel", True)
            setattr(self.bias, "sequence_parallel", True)

    def forward(self, input_, weight=None, runtime_gather_output=None):
        logits = super().forward(input_)
        logits = logits.float()
        if self.sequence_parallel:
            logits = tensor_parallel.gather_from_sequence_parallel_region(
                logits, tensor_parallel_output_grad=False
            )
        return logits, None


class CriticModel(torch.nn.Module):
    def __init__(self, decoder, config):
        super().__init__()
        self.config = config
        self.decoder = decoder
        self.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)

    def forward(self, hidden_states):
        # [s/tp, b, h] with sequence parallelism, [s, b, h] without
        hidden_states = self.decoder(hidden_states)
        values, _ = self.output_layer(hidden_states)
        return values.squeeze(-1).transpose(0, 1).contiguous()


def allreduce_sequence_parallel_grads(model, tp_group):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.main_grad, group=tp_group)


def value_loss(model, hidden_states, returns, mask):
    values = model(hidden_states)
    return (0.5 * (values - returns) ** 2 * mask).sum() / mask.sum()
