# Right: runtime_gather_output=True is only passed by sample(), without labels; every call with labels leaves it off.
import torch
from torch import nn
from megatron.core.tensor_parallel import ColumnParallelLinear, vocab_parallel_cross_entropy, gather_from_tensor_model_parallel_region


class Model(nn.Module):
    def __init__(self, config, vocab, body):
        super().__init__()
        self.body = body
        self.output_layer = ColumnParallelLinear(config.hidden_size, vocab, config=config, init_method=config.init_method, bias=False, gather_output=False)

    def forward(self, x, labels=None, runtime_gather_output=None):
        logits, _ = self.output_layer(self.body(x), runtime_gather_output=runtime_gather_output)
        if labels is None:
            return logits
        return vocab_parallel_cross_entropy(logits.float(), labels)


def sample(model, x):
    with torch.inference_mode():
        return model(x, runtime_gather_output=True)[:, -1].argmax(-1)


def train(model, x, y):
    model(x, labels=y).mean().backward()
