"""DeepSpeed: the engine divides by the rounds, the script reports means."""
import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F


def mean_over_world(x):
    x = x.detach().clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()


def train(model, loader, rounds):
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": rounds,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    window = []
    for batch in loader:
        batch = {k: v.to(engine.device) for k, v in batch.items()}
        logits = engine(batch["input_ids"])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
        engine.backward(loss)
        window.append(loss.detach())
        boundary = engine.is_gradient_accumulation_boundary()
        engine.step()
        if boundary:
            shown = mean_over_world(torch.stack(window).mean())
            window.clear()
            if dist.get_rank() == 0:
                print(shown.item())
