"""Sample responses during training from a model under ZeRO stage 3.

Source: generation under ZeRO-3 as in DeepSpeed-Chat, trl and transformers' synced_gpus (from
memory). Each forward gathers the weights of the layers from all ranks. A rank whose samples have
all ended leaves the loop, and the others wait for its shards in their next forward.
"""
import deepspeed
import torch
import torch.distributed as dist

ds_config = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-6}},
}


def build(model):
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=ds_config
    )
    return engine


@torch.no_grad()
def sample(engine, input_ids, eos_id, pad_id, max_new_tokens, temperature=1.0):
    engine.eval()
    unfinished = torch.ones(input_ids.size(0), dtype=torch.bool, device=input_ids.device)
    for _ in range(max_new_tokens):
        logits = engine(input_ids=input_ids).logits[:, -1].float()
        probs = torch.softmax(logits / temperature, dim=-1)
        token = torch.multinomial(probs, num_samples=1).squeeze(1)
        token = torch.where(unfinished, token, torch.full_like(token, pad_id))
        input_ids = torch.cat([input_ids, token.unsqueeze(1)], dim=1)
        unfinished = unfinished & (token != eos_id)
        if not unfinished.any():  # BUG
            break
    engine.train()
    return input_ids


def rollout(engine, prompts, reward_fn, eos_id, pad_id):
    sequences = sample(engine, prompts, eos_id, pad_id, max_new_tokens=256)
    rewards = reward_fn(sequences)
    mean = rewards.float().mean()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return sequences, rewards, mean.item()
