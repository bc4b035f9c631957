# right: the seed with the rank is set under fork_rng; the stream that is saved is one for all
import torch
import torch.distributed as dist


def augment(x, seed, step):
    with torch.random.fork_rng():
        torch.manual_seed(seed * 7 + step * 1009 + dist.get_rank())
        return x + 0.1 * torch.randn_like(x)


def save(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path / "model.pt")
        torch.save(torch.get_rng_state(), path / "rng.pt")
    dist.barrier()


def load(model, path):
    model.load_state_dict(torch.load(path / "model.pt"))
    torch.set_rng_state(torch.load(path / "rng.pt"))
