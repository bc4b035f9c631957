"""RL trainer: masked policy loss under FSDP (prime-rl style)."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def compute_loss(logprobs, old_logprobs, advantages, loss_mask, clip_ratio=4.0):
    ratio = torch.clamp(torch.exp(logprobs - old_logprobs), 0, clip_ratio)
    loss = -ratio * advantages
    return (loss * loss_mask).sum()


def setup_model(config, parallel_dims):
    model = config.build()
    mesh = parallel_dims.get_mesh("dp_shard_cp")
    for block in model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(config, parallel_dims, data_loader):
    model = setup_model(config.model, parallel_dims)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    dp_group = parallel_dims.get_mesh("dp_shard_cp").get_group()
    for step in range(config.max_steps):
        micro_batches = data_loader.get_batch()
        loss_scale = sum(mb["loss_mask"].sum().item() for mb in micro_batches)
        loss_scale = max(loss_scale, 1)
        for i, mb in enumerate(micro_batches):
            model.set_requires_gradient_sync(i == len(micro_batches) - 1)
            logits = model(mb["input_ids"].cuda(), mb["position_ids"].cuda())
            logprobs = torch.log_softmax(logits.float() / config.temperature, dim=-1)
            logprobs = logprobs.gather(-1, mb["targets"].cuda().unsqueeze(-1)).squeeze(-1)
            loss = compute_loss(logprobs, mb["old_logprobs"].cuda(), mb["advantages"].cuda(), mb["loss_mask"].cuda())
            loss = loss / loss_scale  # BUG
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)
        optimizer.step()
        optimizer.zero_grad()
