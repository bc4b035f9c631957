"""Output layer and loss of a GPT model.

Source: https://github.com/NVIDIA/Megatron-LM/issues/7452
"""
import torch
from megatron.core import tensor_parallel


class GPTModel(torch.nn.Module):
    def __init__(self, config, decoder, vocab_size, parallel_output=True):
        super().__init__()
        self.decoder = decoder
        self.parallel_output = parallel_output
        self.output_layer = tensor_parallel.ColumnParallelLinear(
            config.hidden_size,
            vocab_size,
            config=config,
            init_method=config.init_method,
            bias=False,
            gather_output=not self.parallel_output,
        )

    def compute_language_model_loss(self, labels, logits):
        # labels: [b, s], logits: [s, b, v]
        labels = labels.transpose(0, 1).contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels)
        return loss.transpose(0, 1).contiguous()

    def forward(self, decoder_input, labels=None, runtime_gather_output=None):
        hidden_states = self.decoder(decoder_input)
        gather = runtime_gather_output
        logits, _ = self.output_layer(hidden_states, runtime_gather_output=gather)
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        return self.compute_language_model_loss(labels, logits)  # BUG
