"""Context-parallel batch of a vision-language model.
NVIDIA-NeMo/Automodel #2931, "preserve gradients when sharding VLM inputs".
"""
import torch
from torch.distributed.device_mesh import DeviceMesh


def shard_buffer_for_cp(buffer: torch.Tensor, seq_dim: int, cp_mesh: DeviceMesh) -> torch.Tensor:
    """Head-tail load-balanced slice of this context-parallel rank."""
    cp_size, cp_rank = cp_mesh.size(), cp_mesh.get_local_rank()
    num_chunks = 2 * cp_size
    seq_len = buffer.shape[seq_dim]
    if seq_len % num_chunks != 0:
        raise ValueError(f"CP sequence length {seq_len} must be divisible by {num_chunks}")
    chunk_size = seq_len // num_chunks
    head = buffer.narrow(seq_dim, cp_rank * chunk_size, chunk_size)
    tail = buffer.narrow(seq_dim, (num_chunks - cp_rank - 1) * chunk_size, chunk_size)
    return torch.cat((head, tail), dim=seq_dim)


def make_cp_batch(model, batch, cp_mesh: DeviceMesh):
    inputs_embeds = model.embed_tokens(batch.pop("input_ids"))
    image_embeds = model.vision_tower(batch.pop("pixel_values"))
    image_mask = batch.pop("image_mask").unsqueeze(-1).expand_as(inputs_embeds)
    inputs_embeds = inputs_embeds.masked_scatter(image_mask, image_embeds)

    seq_len = inputs_embeds.shape[1]
    position_ids = torch.arange(seq_len, device=inputs_embeds.device).unsqueeze(0)
    cp_buffers = {
        "inputs_embeds": (inputs_embeds.detach(), 1),  # BUG
        "labels": (batch["labels"], 1),
        "position_ids": (position_ids, 1),
    }
    for name, (buffer, seq_dim) in cp_buffers.items():
        batch[name] = shard_buffer_for_cp(buffer, seq_dim, cp_mesh)
    return batch
