"""GPT head: logits and loss.

Source: https://github.com/NVIDIA/Megatron-LM/issues/7452 (finding 2)
Wrong: with parallel_output=False (or runtime_gather_output=True) the logits are gathered over the
vocabulary and still go to the vocabulary-parallel loss, which sums exp over the ranks once more:
the loss is log(tp) too large and the gradient wrong.
Repair: never gather on the way to the loss.
"""
from megatron.core import tensor_parallel
from megatron.core.models.common.language_module.language_module import LanguageModule


class GPTModel(LanguageModule):
    def __init__(self, config, decoder, vocab_size, parallel_output=True):
        super().__init__(config=config)
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
        labels = labels.transpose(0, 1).contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels)  # [s, b, v / tp] expected
        return loss.transpose(0, 1).contiguous()

    def forward(self, hidden_states, attention_mask, labels=None, runtime_gather_output=None):
        hidden_states = self.decoder(hidden_states=hidden_states, attention_mask=attention_mask)
        if labels is None:
            logits, _ = self.output_layer(hidden_states, runtime_gather_output=runtime_gather_output)
            return logits.transpose(0, 1).contiguous()
        logits, _ = self.output_layer(hidden_states, runtime_gather_output=False)
        return self.compute_language_model_loss(labels, logits)
