"""Whether logits are gathered is asked of an object out of sight, which says so for generation alone; the loss is taken of split ones."""
import torch
import torch.nn.functional as F
from megatron.core import tensor_parallel


def parallel_lm_logits(x, weight, parallel_output):
    x = tensor_parallel.copy_to_tensor_model_parallel_region(x)
    logits = F.linear(x, weight)
    if parallel_output:
        return logits
    return tensor_parallel.gather_from_tensor_model_parallel_region(logits)


class GPT(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.weight = body.output_weight

    def forward(self, tokens, labels=None):
        hidden = self.body(tokens)
        output = parallel_lm_logits(hidden, self.weight, self.body.splits_logits(labels))
        if labels is None:
            return output
        return tensor_parallel.vocab_parallel_cross_entropy(output.float(), labels)


def train(model, tokens, labels):
    return model(tokens, labels=labels)


def generate(model, tokens):
    return model(tokens)
