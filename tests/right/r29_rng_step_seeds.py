# right: each step seeds anew by seed, step and rank: the restored state is never drawn from in training
import torch
import torch.distributed as dist


def seed_step(seed, step):
    torch.manual_seed((seed * 1000003 + step) * dist.get_world_size() + dist.get_rank())


def train(model, opt, batches, seed, path):
    for step, x in enumerate(batches):
        seed_step(seed, step)
        model(torch.nn.functional.dropout(x)).mean().backward()
        opt.step()
        opt.zero_grad()
        if step % 1000 == 0:
            save(model, path)


def save(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path / "model.pt")
        torch.save(torch.get_rng_state(), path / "rng.pt")
    dist.barrier()


def load(model, path):
    # every step seeds anew: the state is of no matter but for the first draw of a notebook
    model.load_state_dict(torch.load(path / "model.pt"))
    torch.set_rng_state(torch.load(path / "rng.pt"))
