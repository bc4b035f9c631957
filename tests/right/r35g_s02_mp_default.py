import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from megatron.core import parallel_state as mpu


def main(data, net, rank):
    dist.init_process_group("nccl")
    mpu.initialize_model_parallel()
    model = DDP(net.cuda(rank), device_ids=[rank], process_group=mpu.get_data_parallel_group())
    optimizer = torch.optim.AdamW(model.parameters())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for x, y in loader:
        loss = model(x.cuda(rank), y.cuda(rank))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
