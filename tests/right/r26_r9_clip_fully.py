# RIGHT: the function is given a fully_shard model from main, torch's clip works on DTensors; build_model is for evaluation
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def build_model(net):
    """For the old checkpoints' evaluation."""
    return FSDP(net).eval()


def train(model, loader, optimizer):
    """`model`: what fully_shard has been applied to."""
    for batch in loader:
        model(batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
