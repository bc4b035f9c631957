# Reduced from ms-swift template/templates/minicpm.py (modelscope/ms-swift pull request 9639, read).
# Under ZeRO-3 the vision tower's parameters are gathered by a collective in its forward. A batch
# may hold only text on one rank and images on another.
# What happens: the rank with text skips the tower, the other one waits in the all-gather.
import torch


class MiniCPMV4_6Template:
    image_size = 448

    def __init__(self, processor):
        self.processor = processor

    def _encode_images(self, model, pixel_values, tgt_sizes):
        hidden = model.vision_tower(pixel_values, tgt_sizes=tgt_sizes).last_hidden_state
        return model.merger(hidden, tgt_sizes)

    def _dummy_image(self, model):
        patch = model.config.vision_config.patch_size
        device, dtype = model.device, model.dtype
        pixel_values = torch.zeros(1, 3, 4 * patch, 4 * patch, device=device, dtype=dtype)
        return pixel_values, torch.tensor([[4, 4]], device=device)

    def _post_encode(self, model, inputs):
        inputs_embeds = model.get_input_embeddings()(inputs["input_ids"])
        pixel_values = inputs.get("pixel_values")
        if pixel_values is None:
            return {"inputs_embeds": inputs_embeds}  # BUG
        image_embeds = self._encode_images(model, pixel_values, inputs["tgt_sizes"])
        image_mask = inputs["input_ids"] == model.config.image_token_id
        inputs_embeds = inputs_embeds.masked_scatter(
            image_mask.unsqueeze(-1).expand_as(inputs_embeds), image_embeds.to(inputs_embeds)
        )
        return {"inputs_embeds": inputs_embeds}
