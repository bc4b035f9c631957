"""Replay of a recorded training trace: recreate the process groups, then run the collectives."""
import json

import torch
import torch.distributed as dist


class TraceReplay:
    def __init__(self, trace_path: str):
        with open(trace_path) as f:
            trace = json.load(f)
        self.pg_desc = sorted(trace["process_groups"], key=lambda d: d["pg_id"])
        self.comms = trace["comms"]
        self.rank = dist.get_rank()
        self.groups = {}

    def init_groups(self):
        for desc in self.pg_desc:
            ranks = desc["ranks"] or list(range(dist.get_world_size()))
            if self.rank in ranks:
                self.groups[desc["pg_id"]] = dist.new_group(ranks=ranks)  # BUG
        dist.barrier()

    def replay(self):
        for comm in self.comms:
            group = self.groups.get(comm["pg_id"])
            if group is None:
                continue
            world = dist.get_world_size(group)
            x = torch.ones(comm["in_msg_size"], device="cuda")
            if comm["name"] == "all_reduce":
                dist.all_reduce(x, group=group)
            elif comm["name"] == "all_gather":
                dist.all_gather_into_tensor(x.new_empty(world * x.numel()), x, group=group)
            elif comm["name"] == "reduce_scatter":
                dist.reduce_scatter_tensor(x.new_empty(x.numel() // world), x, group=group)
        torch.cuda.synchronize()
