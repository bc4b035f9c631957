"""Fine-tuning loop on a DeepSpeed engine."""
import deepspeed
import torch


def get_config(args):
    return {
        "train_micro_batch_size_per_gpu": args.micro_batch,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "gradient_clipping": args.max_grad_norm,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
    }


def train(model, optimizer, loader, args):
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=get_config(args)
    )
    engine.train()
    running = torch.zeros((), device=engine.device)
    for step, batch in enumerate(loader):
        batch = {k: v.to(engine.device) for k, v in batch.items()}
        outputs = engine(**batch, use_cache=False)
        loss = outputs.loss
        running += loss.detach()
        engine.backward(loss)
        engine.step()
        if engine.is_gradient_accumulation_boundary():
            if engine.global_rank == 0:
                print(step, (running / args.gradient_accumulation_steps).item())
            running.zero_()
