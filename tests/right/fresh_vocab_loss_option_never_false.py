# Heads of Megatron-LM: parallel_output is an option of the constructor; every caller of the program has it true.
from megatron.core import tensor_parallel
import torch


class LMHead(torch.nn.Module):
    def __init__(self, config, parallel_output):
        super().__init__()
        self.output_layer = tensor_parallel.ColumnParallelLinear(
            config.hidden_size, config.vocab_size, config=config, init_method=config.init_method,
            gather_output=not parallel_output)

    def forward(self, hidden):
        logits, _ = self.output_layer(hidden)
        return logits


class Model(torch.nn.Module):
    def __init__(self, config, parallel_output=True):
        super().__init__()
        self.lm_head = LMHead(config, parallel_output)

    def forward(self, hidden, labels=None):
        logits = self.lm_head(hidden)
        if labels is None:
            return logits
        return tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels)


def model_provider(config):
    return Model(config, parallel_output=True)


def train(config, hidden, labels):
    model = model_provider(config)
    model(hidden, labels=labels).sum().backward()


