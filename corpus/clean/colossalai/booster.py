"""Training with the booster: plugin, clipping, a logged loss that is averaged, pipeline schedule or plain steps."""

import argparse
from contextlib import nullcontext

import colossalai
import torch
import torch.distributed as dist
import torch.nn as nn
from colossalai.booster import Booster
from colossalai.booster.plugin import GeminiPlugin, HybridParallelPlugin, LowLevelZeroPlugin, TorchDDPPlugin
from colossalai.cluster import DistCoordinator
from colossalai.lazy import LazyInitContext
from colossalai.nn.optimizer import HybridAdam
from tqdm import tqdm
from transformers import AutoConfig, AutoModelForCausalLM


def all_reduce_mean(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    tensor.div_(dist.get_world_size())
    return tensor


def get_plugin(args):
    if args.plugin == "ddp":
        return TorchDDPPlugin(find_unused_parameters=False)
    if args.plugin == "gemini":
        return GeminiPlugin(precision="bf16", max_norm=args.grad_clip)
    if args.plugin == "zero2":
        return LowLevelZeroPlugin(stage=2, precision="bf16", max_norm=args.grad_clip)
    return HybridParallelPlugin(
        tp_size=args.tp,
        pp_size=args.pp,
        num_microbatches=args.micro_batches,
        enable_sequence_parallelism=args.sp_mode is not None,
        sequence_parallelism_mode=args.sp_mode,
        zero_stage=1,
        precision="bf16",
    )


@torch.no_grad()
def evaluate(model, loader, booster, coordinator):
    model.eval()
    total = torch.zeros((), device="cuda")
    count = 0
    for batch in loader:
        batch = {k: v.cuda() for k, v in batch.items()}
        outputs = model(**batch)
        total += outputs["loss"]
        count += 1
    mean = all_reduce_mean(total / max(count, 1))
    coordinator.print_on_master(f"eval loss {mean.item():.4f}")
    model.train()
    return mean


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", default="3d", choices=["ddp", "gemini", "zero2", "3d"])
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--micro_batches", type=int, default=4)
    parser.add_argument("--sp_mode", default=None)
    parser.add_argument("--grad_clip", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()

    colossalai.launch_from_torch()
    coordinator = DistCoordinator()
    plugin = get_plugin(args)
    booster = Booster(plugin=plugin)
    train_set, eval_set = torch.load("tokens.pt")
    loader = plugin.prepare_dataloader(train_set, batch_size=8, shuffle=True, drop_last=True)
    eval_loader = plugin.prepare_dataloader(eval_set, batch_size=8, shuffle=False)

    lazy = LazyInitContext() if isinstance(plugin, (GeminiPlugin, HybridParallelPlugin)) else nullcontext()
    with lazy:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("meta-llama/Llama-3.2-1B"))
    optimizer = HybridAdam(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader) * args.epochs)
    model, optimizer, _, loader, scheduler = booster.boost(model, optimizer, dataloader=loader, lr_scheduler=scheduler)
    use_pipeline = isinstance(plugin, HybridParallelPlugin) and plugin.pp_size > 1
    is_last = use_pipeline and plugin.stage_manager.is_last_stage()

    for epoch in range(args.epochs):
        iterator = iter(loader)
        with tqdm(range(len(loader)), disable=not (coordinator.is_master() or is_last)) as bar:
            for _ in bar:
                if use_pipeline:
                    outputs = booster.execute_pipeline(
                        iterator, model, criterion=lambda out, _: out[0], optimizer=optimizer, return_loss=True
                    )
                    loss = outputs["loss"]
                else:
                    batch = {k: v.cuda() for k, v in next(iterator).items()}
                    loss = model(**batch)[0]
                    booster.backward(loss, optimizer)
                if args.plugin == "ddp":
                    nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if not use_pipeline:
                    shown = all_reduce_mean(loss.detach().clone())
                    bar.set_postfix(loss=shown.item())
        if not use_pipeline:
            evaluate(model, eval_loader, booster, coordinator)
        booster.save_model(model, f"epoch-{epoch}", shard=True)


if __name__ == "__main__":
    main()
