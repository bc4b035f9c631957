"""Vision-language model whose vision encoder is an FSDP unit of its own.

Source: pytorch/torchtitan PR #4777, huggingface/transformers issue #37186.
"""
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class VLMModel(nn.Module):
    def __init__(self, tok_embeddings, vision_encoder, projector, layers, norm, output, image_shape):
        super().__init__()
        self.tok_embeddings = tok_embeddings
        self.vision_encoder = vision_encoder
        self.projector = projector
        self.layers = nn.ModuleList(layers)
        self.norm, self.output = norm, output
        self.image_shape = image_shape

    def forward(self, tokens, pixel_values=None, image_mask=None):
        # pixel_values is None when no sample of the local batch has an image
        h = self.tok_embeddings(tokens)
        has_image = pixel_values is not None
        images = pixel_values if has_image else h.new_zeros(1, *self.image_shape)
        features = self.projector(self.vision_encoder(images))
        if has_image:
            h = h.masked_scatter(image_mask.unsqueeze(-1), features.to(h.dtype))
        else:
            h = h + 0.0 * features.sum().to(h.dtype)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def parallelize(model: VLMModel, dp_mesh):
    for block in model.vision_encoder.blocks:
        fully_shard(block, mesh=dp_mesh)
    fully_shard(model.vision_encoder, mesh=dp_mesh)
    for layer in model.layers:
        fully_shard(layer, mesh=dp_mesh)
    fully_shard(model, mesh=dp_mesh)
    return model


def train_step(model, batch, optimizer):
    logits = model(batch["tokens"], batch.get("pixel_values"), batch.get("image_mask"))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
