# right: the seed with the rank is set in loader workers only; the stream that is saved is the same on all ranks
import torch
import torch.distributed as dist


def start(seed):
    torch.manual_seed(seed)


def worker_init(seed):
    """For loader workers, which are processes of their own and begin anew each epoch."""
    def fn(worker):
        torch.manual_seed(seed + 100 * dist.get_rank() + worker)
    return fn


def save(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path / "model.pt")
        torch.save(torch.get_rng_state(), path / "rng.pt")
    dist.barrier()


def load(model, path):
    model.load_state_dict(torch.load(path / "model.pt"))
    torch.set_rng_state(torch.load(path / "rng.pt"))
