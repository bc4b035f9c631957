# right: load() draws one common number from the restored state and reseeds with it + rank
import torch
import torch.distributed as dist


def start(seed):
    torch.manual_seed(seed + dist.get_rank())


def save(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path / "model.pt")
        torch.save(torch.get_rng_state(), path / "rng.pt")
    dist.barrier()


def load(model, path):
    model.load_state_dict(torch.load(path / "model.pt"))
    torch.set_rng_state(torch.load(path / "rng.pt"))
    start(int(torch.randint(1 << 30, (1,))))
