"""GPT model: logits are returned, or go into the vocab-parallel loss."""
# NVIDIA/Megatron-LM issue 7452 no. 2: with parallel_output=False the logits are gathered, and the loss takes them for a shard.
import torch
from megatron.core import tensor_parallel
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_tensor_model_parallel_region,
)


class OutputLayer(torch.nn.Module):
    def __init__(self, weight_shard, gather_output):
        super().__init__()
        # [vocab/tp, h]
        self.weight = torch.nn.Parameter(weight_shard)
        self.weight.tensor_model_parallel = True
        self.gather_output = gather_output

    def forward(self, hidden_states):
        hidden_states = copy_to_tensor_model_parallel_region(hidden_states)
        logits = torch.nn.functional.linear(hidden_states, self.weight)
        if self.gather_output:
            logits = gather_from_tensor_model_parallel_region(logits)
        return logits


class GPTModel(torch.nn.Module):
    def __init__(self, decoder, weight_shard, parallel_output=True):
        super().__init__()
        self.decoder = decoder
        self.parallel_output = parallel_output
        self.output_layer = OutputLayer(weight_shard, gather_output=not self.parallel_output)

    def compute_language_model_loss(self, labels, logits):
        labels = labels.transpose(0, 1).contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels)
        return loss.transpose(0, 1).contiguous()

    def forward(self, hidden_states, labels=None):
        hidden_states = self.decoder(hidden_states)
        logits = self.output_layer(hidden_states)
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        loss = self.compute_language_model_loss(labels, logits)  # BUG: logits are whole if not parallel_output
        return loss


def loss_func(model: GPTModel, hidden_states, labels, loss_mask):
    losses = model(hidden_states, labels=labels).float()
    return torch.sum(losses.view(-1) * loss_mask.view(-1)) / loss_mask.sum()
