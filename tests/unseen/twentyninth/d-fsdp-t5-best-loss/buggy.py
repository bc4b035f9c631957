"""Fine-tune T5 with FSDP and keep the weights of the epoch with the lowest validation loss."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def validation(model, rank, val_loader):
    model.eval()
    fsdp_loss = torch.zeros(2, device=rank)
    with torch.no_grad():
        for batch in val_loader:
            batch = {k: v.to(rank) for k, v in batch.items()}
            output = model(**batch)
            fsdp_loss[0] += output.loss.item()
            fsdp_loss[1] += 1
    dist.reduce(fsdp_loss, dst=0, op=dist.ReduceOp.SUM)  # BUG
    return (fsdp_loss[0] / fsdp_loss[1]).item()


def save_model(model, rank, path):
    policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        cpu_state = model.state_dict()
    if rank == 0:
        torch.save(cpu_state, path)


def fsdp_main(model, rank, train_one_epoch, train_sampler, train_loader, val_loader, optimizer, scheduler, args):
    best_val_loss = float("inf")
    for epoch in range(1, args.epochs + 1):
        train_sampler.set_epoch(epoch)
        train_one_epoch(model, rank, train_loader, optimizer, epoch)
        curr_val_loss = validation(model, rank, val_loader)
        scheduler.step()

        if curr_val_loss < best_val_loss:
            best_val_loss = curr_val_loss
            save_model(model, rank, args.checkpoint)
            if rank == 0:
                print(f"epoch {epoch}: new best validation loss {best_val_loss:.4f}")
    dist.barrier()
