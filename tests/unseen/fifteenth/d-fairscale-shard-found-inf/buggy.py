# Reduced from fairscale benchmarks/oss.py (facebookresearch/fairscale issue 180, PR 182, read).
# ShardedDDP reduces each gradient to the rank that owns its optimizer state; OSS.step() then
# broadcasts the updated parameters. The GradScaler looks for inf only in the gradients it sees.
# What happens: a rank that finds inf skips step(), another one steps and hangs in the broadcast.
import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.optim.oss import OSS
from torch.cuda.amp import GradScaler, autocast


def train(rank, world_size, build_model, dataloader, epochs, lr):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    torch.cuda.set_device(rank)

    model = build_model().to(rank)
    optimizer = OSS(params=model.parameters(), optim=torch.optim.SGD, lr=lr, momentum=0.9)
    ddp = ShardedDataParallel(model, optimizer)
    loss_fn = torch.nn.CrossEntropyLoss()
    scaler = GradScaler()  # BUG

    for _ in range(epochs):
        for inputs, labels in dataloader:
            optimizer.zero_grad()
            with autocast():
                outputs = ddp(inputs.to(rank))
                loss = loss_fn(outputs, labels.to(rank))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    dist.destroy_process_group()
