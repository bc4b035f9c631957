import copy
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class TestTimeTrainer:
    """Every sample gets weights of its own: nothing is to be shared between ranks."""

    def __init__(self, net, rank, lr=1e-3):
        self.model = DDP(net.cuda(rank))
        self.start = copy.deepcopy(net.state_dict())
        self.lr = lr

    def predict(self, x):
        self.model.module.load_state_dict(self.start)
        loss = self.model.module.rotation_loss(x)
        grads = torch.autograd.grad(loss, list(self.model.parameters()), allow_unused=True)
        with torch.no_grad():
            for p, g in zip(self.model.parameters(), grads):
                if g is not None:
                    p.sub_(self.lr * g)
            return self.model.module(x).argmax(-1)
