"""Fine-tuning a causal LM with tensor parallelism inside a node and FSDP2 between nodes."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM


def build_model(name, mesh):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32)
    tp_plan = {
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(),
    }
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        parallelize_module(block, mesh["tp"], tp_plan)
        fully_shard(block, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    return model


def build_dataloader(dataset, batch_size, mesh, seed):
    dp_size = mesh["dp"].size()
    dp_rank = dist.get_rank() % dp_size  # BUG
    sampler = DistributedSampler(
        dataset, num_replicas=dp_size, rank=dp_rank, shuffle=True, seed=seed, drop_last=True
    )
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=4, drop_last=True)


def main(args, dataset):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    world_size = dist.get_world_size()
    mesh = init_device_mesh(
        "cuda", (world_size // args.tp_size, args.tp_size), mesh_dim_names=("dp", "tp")
    )
    dp_group = mesh["dp"].get_group()

    model = build_model(args.model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, foreach=False)
    dataloader = build_dataloader(dataset, args.batch_size, mesh, args.seed)

    for epoch in range(args.epochs):
        dataloader.sampler.set_epoch(epoch)
        for step, batch in enumerate(dataloader):
            input_ids, labels = batch["input_ids"].cuda(), batch["labels"].cuda()
            num_tokens = (labels[:, 1:] != -100).sum()
            dist.all_reduce(num_tokens, group=dp_group)

            logits = model(input_ids=input_ids).logits[:, :-1]
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(), labels[:, 1:].flatten(),
                ignore_index=-100, reduction="sum",
            )
            loss = loss / num_tokens * dist.get_world_size(dp_group)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

            loss = loss.detach()
            dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=dp_group)
            if dist.get_rank() == 0 and step % args.log_every == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
