# right: the seed with the rank is set in loader workers (worker_init_fn) only; the saved stream is one for all
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def loader(dataset, seed, batch):
    def seed_worker(worker_id):
        torch.manual_seed(seed + 1000 * dist.get_rank() + worker_id)

    return DataLoader(dataset, batch, sampler=DistributedSampler(dataset, seed=seed), num_workers=4, worker_init_fn=seed_worker)


def main(model, dataset, seed, path):
    torch.manual_seed(seed)
    for x in loader(dataset, seed, 8):
        model(x).mean().backward()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path / "model.pt")
        torch.save(torch.get_rng_state(), path / "rng.pt")
    dist.barrier()


def resume(model, path):
    model.load_state_dict(torch.load(path / "model.pt"))
    torch.set_rng_state(torch.load(path / "rng.pt"))
