import mylib.comm as comm
from torch.nn.parallel import DistributedDataParallel


def train(net, optimizer, batches, writer):
    model = DistributedDataParallel(net)
    for i, batch in enumerate(batches):
        model(batch).mean().backward()
        optimizer.step()
        for n, p in model.named_parameters():
            p.grad = comm.all_reduce(p.grad, op="mean")
            writer.add_scalar(n, p.grad.norm(), i)
        optimizer.zero_grad()
