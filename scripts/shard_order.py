#!/usr/bin/env python3
"""What DTensor does for redistributes with a shard order (strided shards), recorded from PyTorch.

One record per (mesh, shape, source, target): the planner's steps, its trace, the collectives issued forward and backward
on CPU, or the error raised. The source or the target has a shard order that is not left to right.
Needs torch 2.15. Writes tests/oracle/shard_order.jsonl.

usage: shard_order.py OUT.jsonl
"""
import json, logging, random, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
import torch, torch.distributed as dist
import torch.distributed.tensor._redistribute as rd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard

dist.init_process_group(backend="fake", rank=0, world_size=8)


def counts(cm):
    return sorted((str(k).split(".")[-1], v) for k, v in cm.get_comm_counts().items())


def local(shape, sizes, placements):
    out = list(shape)
    for n, p in zip(sizes, placements):
        if isinstance(p, (Shard, _StridedShard)):
            out[p.dim] //= n
    return out


def some(mesh, names, rng):
    """Placements with a random shard order, as strided shards."""
    plain = tuple(rng.choice(names) for _ in range(mesh.ndim))
    dims = {}
    for i, p in enumerate(plain):
        if isinstance(p, Shard):
            dims.setdefault(p.dim, []).append(i)
    order = tuple(ShardOrderEntry(d, tuple(rng.sample(v, len(v)))) for d, v in sorted(dims.items()))
    return DTensorSpec._convert_shard_order_to_StridedShard(order, plain, mesh)


def one(mesh, sizes, shape, s, d):
    rd._gen_transform_infos.cache_clear(); rd.clear_redistribute_planner_cache()
    rec = {"mesh": list(sizes), "shape": list(shape), "src": [str(x) for x in s], "dst": [str(x) for x in d]}
    stride = torch.empty(shape, device="meta").stride()
    try:
        x = DTensor.from_local(torch.zeros(local(shape, sizes, s), requires_grad=True), mesh, s, run_check=False)
        with CommDebugMode() as cm:
            y = x.redistribute(mesh, d)
        rec["forward"] = counts(cm)
    except Exception as e:
        rec["error"] = [type(e).__name__, str(e).split("\n")[0]]
        return rec
    meta = TensorMeta(torch.Size(shape), stride, torch.float32)
    a, b = DTensorSpec(mesh, s, meta), DTensorSpec(mesh, d, meta)
    rd.clear_redistribute_planner_cache()
    infos = rd._gen_transform_infos_non_cached(a, b)
    rec["steps"] = [[t.mesh_dim, str(t.src_dst_placements[0]), str(t.src_dst_placements[1])] for t in infos]
    rec["trace"] = rd.DTensorRedistributePlanner.stringify_transform_infos(
        mesh, infos, a.placements, a.shard_order, a.use_strided_shard_as_shard_order)
    rd.clear_redistribute_planner_cache()
    try:
        with CommDebugMode() as cm:
            y.backward(DTensor.from_local(torch.ones_like(y.to_local()), mesh, d, run_check=False))
        rec["backward"] = counts(cm)
    except Exception as e:
        rec["backward_error"] = [type(e).__name__, str(e).split("\n")[0]]
    return rec


R, S, P = Replicate(), Shard, Partial
rng = random.Random(11)
CASES = [((2, 4), (16, 16), [R, S(0), S(1), P(), P("avg")], 90), ((2, 4), (2048, 512), [R, S(0), S(1), P("max")], 60),
         ((4, 2), (32, 16, 8), [R, S(0), S(1), S(2), P()], 60), ((2, 2, 2), (16, 16), [R, S(0), S(1), P()], 150),
         ((2, 2, 2), (64, 8, 1024), [R, S(0), S(1), S(2), P(), P("avg")], 120), ((2, 1, 4), (64, 64), [R, S(0), S(1), P()], 60),
         ((8,), (64, 64), [R, S(0), S(1), P()], 0)]
with open(sys.argv[1], "w") as f:
    for sizes, shape, names, n in CASES:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("a", "b", "c")[: len(sizes)])
        while n:
            s, d = some(mesh, names, rng), some(mesh, names, rng)
            if any(isinstance(p, _StridedShard) for p in s + d):
                f.write(json.dumps(one(mesh, sizes, shape, s, d)) + "\n"); n -= 1
