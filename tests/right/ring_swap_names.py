"""Ring attention, forward only (for evaluation): double buffers whose names are swapped after the wait."""
import torch
import torch.distributed as dist


class RingComm:
    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.to = dist.get_global_rank(group, (self.rank + 1) % self.size)
        self.frm = dist.get_global_rank(group, (self.rank - 1) % self.size)
        self.ops, self.reqs = [], None

    def send_recv(self, x, out=None):
        out = torch.empty_like(x) if out is None else out
        self.ops.append(dist.P2POp(dist.isend, x, self.to, group=self.group))
        self.ops.append(dist.P2POp(dist.irecv, out, self.frm, group=self.group))
        return out

    def commit(self):
        self.reqs = dist.batch_isend_irecv(self.ops)

    def wait(self):
        for r in self.reqs:
            r.wait()
        self.reqs, self.ops = None, []


def merge(out, lse, new_out, new_lse):
    if out is None:
        return new_out, new_lse
    total = torch.logaddexp(lse, new_lse)
    return out * (lse - total).exp()[..., None] + new_out * (new_lse - total).exp()[..., None], total


@torch.no_grad()
def ring_attention(q, k, v, group, causal=True):
    comm = RingComm(group)
    out = lse = None
    k, v = k.contiguous(), v.contiguous()
    for step in range(comm.size):
        if step + 1 < comm.size:
            next_k, next_v = comm.send_recv(k), comm.send_recv(v)
            comm.commit()
        if not causal or step <= comm.rank:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            if causal and step == 0:
                s = q.shape[-2]
                mask = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
                scores = scores.masked_fill(mask, float("-inf"))
            out, lse = merge(out, lse, scores.softmax(-1) @ v, scores.logsumexp(-1))
        if step + 1 < comm.size:
            comm.wait()
            k, v = next_k, next_v
    return out
