"""Merge the per-rank files of an FSDP checkpoint into one Hugging Face model."""
import argparse
import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor, Placement, Shard
from transformers import AutoConfig, AutoModelForCausalLM


class FSDPModelMerger:
    def __init__(self, local_dir, target_dir):
        self.local_dir = Path(local_dir)
        self.target_dir = Path(target_dir)

    def _world_size(self):
        for path in self.local_dir.iterdir():
            match = re.match(r"model_world_size_(\d+)_rank_0\.pt", path.name)
            if match:
                return int(match.group(1))
        raise FileNotFoundError(f"no rank 0 file in {self.local_dir}")

    def _rank_path(self, world_size, rank):
        return self.local_dir / f"model_world_size_{world_size}_rank_{rank}.pt"

    def _load_rank(self, world_size, rank):
        return torch.load(
            self._rank_path(world_size, rank), map_location="cpu", weights_only=False
        )

    def _load_all(self, world_size):
        with ThreadPoolExecutor(max_workers=min(32, world_size)) as pool:
            return list(pool.map(lambda r: self._load_rank(world_size, r), range(world_size)))

    @staticmethod
    def _merge_by_placement(tensors, placement: Placement):
        if placement.is_replicate():
            return tensors[0]
        if isinstance(placement, Shard):
            return torch.cat(tensors, dim=placement.dim).contiguous()
        raise NotImplementedError(f"cannot merge {placement}")

    def merge(self):
        """State dict with one full tensor for every entry of the rank files.

        Parameters are stored as DTensor; whatever FSDP leaves alone (persistent
        buffers, ignored parameters) is stored as a plain tensor.
        """
        world_size = self._world_size()
        shards = self._load_all(world_size)

        parts = defaultdict(list)
        placements = {}
        for key in shards[0]:
            for rank in range(world_size):
                value = shards[rank].pop(key)
                if isinstance(value, DTensor):
                    parts[key].append(value._local_tensor.bfloat16())
                    current = tuple(value.placements)
                    if value.device_mesh.mesh_dim_names[0] in ("dp", "ddp"):
                        current = current[1:]
                    assert placements.setdefault(key, current) == current
                else:
                    parts[key].append(value)

        merged = {}
        for key, tensors in parts.items():
            if key in placements:
                (placement,) = placements[key]
                merged[key] = self._merge_by_placement(tensors, placement)
            else:
                merged[key] = torch.cat(tensors, dim=0)  # BUG
        return merged

    def save(self):
        state_dict = self.merge()
        config = AutoConfig.from_pretrained(self.local_dir / "huggingface")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
        model.save_pretrained(self.target_dir, state_dict=state_dict)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_dir", required=True)
    parser.add_argument("--target_dir", required=True)
    args = parser.parse_args()
    FSDPModelMerger(args.local_dir, args.target_dir).save()


if __name__ == "__main__":
    main()
