"""Evolution strategies: ranks exchange rewards only, every rank rebuilds all perturbations from seeds."""
import torch
import torch.distributed as dist


class ES:
    def __init__(self, model, sigma=0.02, lr=0.01):
        self.params = list(model.parameters())
        self.sigma, self.lr = sigma, lr
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.optimizer = torch.optim.Adam(self.params, lr=lr)

    def noise(self, seed):
        g = torch.Generator().manual_seed(seed)
        return [torch.randn(p.shape, generator=g) for p in self.params]

    @torch.no_grad()
    def shifted(self, seed, sign):
        for p, e in zip(self.params, self.noise(seed)):
            p.add_(e, alpha=sign * self.sigma)

    @torch.no_grad()
    def step(self, evaluate, t):
        seed = t * self.world + self.rank
        self.shifted(seed, 1)
        plus = evaluate()
        self.shifted(seed, -2)
        minus = evaluate()
        self.shifted(seed, 1)
        mine = torch.tensor([plus - minus])
        rewards = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(rewards, mine)
        for p in self.params:
            p.grad = torch.zeros_like(p)
        for r, reward in enumerate(rewards):
            for p, e in zip(self.params, self.noise(t * self.world + r)):
                p.grad.add_(e, alpha=-reward.item() / (2 * self.sigma * self.world))
        self.optimizer.step()


def main(model, evaluate, steps):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    es = ES(model)
    for t in range(steps):
        es.step(evaluate, t)
