"""Distributed training of a translation transformer."""
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train_model(build_model, dataset, config, local_rank):
    loader = DataLoader(dataset, batch_size=config.batch_size, sampler=DistributedSampler(dataset))
    model = build_model().to(local_rank)
    model = DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    loss_fn = torch.nn.CrossEntropyLoss()
    for _ in range(config.num_epochs):
        for batch in loader:
            proj_output = model(batch["encoder_input"], batch["decoder_input"])
            loss = loss_fn(proj_output.flatten(0, 1), batch["label"].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
