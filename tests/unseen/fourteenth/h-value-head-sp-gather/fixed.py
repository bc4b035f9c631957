# Reduces verl's LinearForLastLayer for critics on Megatron: the values gathered from the sequence-parallel region are
# used alike on every rank, and the default backward of the gather sums these equal gradients.
import torch
from megatron.core import tensor_parallel
from torch import nn


class LinearForLastLayer(nn.Linear):
    def __init__(self, input_size, output_size, *, config, bias=False):
        super().__init__(in_features=input_size, out_features=output_size, bias=bias)
        self.sequence_parallel = config.sequence_parallel
        if self.sequence_parallel:
            # each rank sees its slice of the sequence; finalize_model_grads adds the slices up
            self.weight.sequence_parallel = True

    def forward(self, input_, weight=None, runtime_gather_output=None):
        logits = super().forward(input_).float()
        if self.sequence_parallel:
            logits = tensor_parallel.gather_from_sequence_parallel_region(
                logits, tensor_parallel_output_grad=False)
        return logits, None


def use_value_head(model, config):
    if hasattr(model, "output_layer"):
        model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)
    return model


def value_loss(model, batch, clip_range):
    """Runs on the last stage with the same batch on all tensor-parallel ranks."""
    vpreds = model(batch["input_ids"], batch["position_ids"], None)  # [s, b, 1]
    vpreds = vpreds.squeeze(-1).transpose(0, 1)
    clipped = batch["values"] + (vpreds - batch["values"]).clamp(-clip_range, clip_range)
    losses = torch.max((vpreds - batch["returns"]) ** 2, (clipped - batch["returns"]) ** 2)
    return 0.5 * (losses * batch["mask"]).sum() / batch["mask"].sum()
