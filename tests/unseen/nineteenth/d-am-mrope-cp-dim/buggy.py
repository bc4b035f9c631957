"""Context-parallel batch preparation of a VLM recipe. NVIDIA-NeMo/Automodel, pull request #1482."""
import contextlib
from functools import partial

import torch
from torch.distributed.tensor.experimental import context_parallel


def make_cp_batch_and_ctx(device_mesh, model, batch):
    cp_mesh = device_mesh["cp"]
    if cp_mesh.size() <= 1:
        return contextlib.nullcontext, batch
    # a text-only batch of Qwen2.5-VL: input_ids and labels (already shifted) are [B, S]
    input_ids, labels = batch["input_ids"], batch["labels"]
    # one temporal, one height and one width position per token: [3, B, S]
    position_ids, _ = model.model.get_rope_index(input_ids)
    position_ids = batch["position_ids"] = position_ids.contiguous()

    buffers = [input_ids, labels, position_ids]
    seq_dims = [1, 1, 1]  # BUG: dim 1 of position_ids is the batch
    ctx = partial(
        context_parallel,
        cp_mesh,
        buffers=buffers,
        buffer_seq_dims=seq_dims,
        no_restore_buffers=set(buffers),
    )
    return ctx, batch


def forward_backward(model, batch, device_mesh, num_label_tokens, dp_cp_size):
    # num_label_tokens: over all data and context ranks; FSDP averages over dp x cp
    ctx, batch = make_cp_batch_and_ctx(device_mesh, model, batch)
    with ctx():
        labels = batch.pop("labels")
        logits = model(**batch).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), reduction="sum"
        )
        loss = loss * dp_cp_size / num_label_tokens
        loss.backward()
    return loss.detach()
