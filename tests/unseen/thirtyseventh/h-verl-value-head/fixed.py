# thread: none (from memory of verl)
"""Value model on a Megatron decoder with sequence parallelism."""
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import nn


class LinearForLastLayer(nn.Linear):
    """Small head kept whole on every rank; input [s, b, h], output in fp32."""

    def __init__(self, input_size, output_size, config, bias=False):
        super().__init__(input_size, output_size, bias=bias)
        self.sequence_parallel = config.sequence_parallel
        nn.init.normal_(self.weight, std=config.init_method_std)
        if self.sequence_parallel:
            self.weight.sequence_parallel = True

    def forward(self, input_, weight=None, runtime_gather_output=None):
        logits = super().forward(input_).float()
        if self.sequence_parallel:
            logits = tensor_parallel.gather_from_sequence_parallel_region(
                logits, tensor_parallel_output_grad=False
            )
        return logits, None


def build_value_model(config, layer_spec, vocab_size, max_length, pre_process, post_process):
    model = GPTModel(
        config=config,
        transformer_layer_spec=layer_spec,
        vocab_size=vocab_size,
        max_sequence_length=max_length,
        pre_process=pre_process,
        post_process=post_process,
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    )
    if post_process:
        model.output_layer = LinearForLastLayer(config.hidden_size, 1, config)
    return model


def value_loss(values, batch, clip):
    """Sum over the tokens of this microbatch and their count."""
    returns, old, mask = batch["returns"], batch["values"], batch["mask"].float()
    clipped = torch.max(torch.min(values, old + clip), old - clip)
    losses = torch.max((values - returns).square(), (clipped - returns).square())
    total, count = 0.5 * (losses * mask).sum(), mask.sum().int()
    return total, count, {"vf_loss": torch.stack([total.detach(), count.float()])}


class MegatronCritic:
    """config.calculate_per_token_loss is set; gradients are divided by the token count."""

    def __init__(self, model_chunks, optimizer, config, clip):
        assert config.calculate_per_token_loss
        assert parallel_state.get_context_parallel_world_size() == 1
        self.chunks, self.optimizer, self.config, self.clip = model_chunks, optimizer, config, clip

    def forward_step(self, iterator, model):
        batch = {k: v.cuda() for k, v in next(iterator).items()}
        output = model(batch["input_ids"], batch["position_ids"], None)

        def loss_func(output):
            return value_loss(output.squeeze(-1), batch, self.clip)

        return output, loss_func

    def update(self, micro_batches, seq_length):
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        run = get_forward_backward_func()
        metrics = run(
            forward_step_func=self.forward_step,
            data_iterator=[iter(micro_batches) for _ in self.chunks],
            model=self.chunks,
            num_microbatches=len(micro_batches),
            seq_length=seq_length,
            micro_batch_size=micro_batches[0]["input_ids"].shape[0],
            forward_only=False,
        )
        self.optimizer.step()
        return metrics
