# right: the seed with the rank is for sampling in evaluate, which puts the common stream back
import torch
import torch.distributed as dist


def evaluate(model, prompts, seed):
    """Sampling differs by rank; the training stream is put back after it."""
    kept = torch.get_rng_state()
    torch.manual_seed(seed + dist.get_rank())
    out = [model.sample(p) for p in prompts]
    torch.set_rng_state(kept)
    return out


def train(model, loader, seed):
    torch.manual_seed(seed)
    for x in loader:
        model(x + torch.randn_like(x)).mean().backward()


def save(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path / "model.pt")
        torch.save(torch.get_rng_state(), path / "rng.pt")
    dist.barrier()


def load(model, path):
    model.load_state_dict(torch.load(path / "model.pt"))
    torch.set_rng_state(torch.load(path / "rng.pt"))
