# Reduces ports of CleanRL's ppo_atari_multigpu: the gradient is clipped on each rank by its own norm and only then
# averaged, so the ranks enter the average with different factors and the clipped norm is not that of the update.
import os

import torch
import torch.distributed as dist
from torch import nn


def flat_grads(parameters):
    return torch.cat([p.grad.view(-1) for p in parameters])


def average_gradients(parameters, world_size):
    flat = flat_grads(parameters)
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    offset = 0
    for p in parameters:
        n = p.numel()
        p.grad.copy_(flat[offset : offset + n].view_as(p.grad) / world_size)
        offset += n


def update(agent, optimizer, minibatches, args, world_size):
    params = [p for p in agent.parameters() if p.requires_grad]
    for mb in minibatches:
        pg_loss, v_loss, entropy = agent.losses(mb)
        loss = pg_loss - args.ent_coef * entropy + args.vf_coef * v_loss
        optimizer.zero_grad()
        loss.backward()
        average_gradients(params, world_size)
        nn.utils.clip_grad_norm_(params, args.max_grad_norm)
        optimizer.step()


def main(make_agent, collect, args):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(args.seed)
    agent = make_agent().cuda()
    for p in agent.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    torch.manual_seed(args.seed + dist.get_rank())
    for _ in range(args.num_updates):
        update(agent, optimizer, collect(agent), args, dist.get_world_size())
