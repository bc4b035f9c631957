# RIGHT: the loss is summed over sp with a backward that sums: factor sp is there already
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dnn


def train_step(model, batch, ps, optimizer):
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss_sum = model(**batch).loss_sum
    # backward of dnn.all_reduce sums over the sp ranks, which all have this loss: times sp_size
    loss_sum = dnn.all_reduce(loss_sum, group=ps.sp_group)
    loss = loss_sum / total * ps.dp_size
    loss.backward()
    optimizer.step()
