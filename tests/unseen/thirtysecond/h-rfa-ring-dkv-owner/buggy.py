"""Backward of ring flash attention.
zhuzilin/ring-flash-attention, ring_flash_attn.py, from memory.
"""
import torch
import torch.distributed as dist


class RingComm:
    def __init__(self, group):
        self.group, self.ops, self.reqs = group, [], None
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        self.send_rank = dist.get_global_rank(group, (self.rank + 1) % self.world_size)
        self.recv_rank = dist.get_global_rank(group, (self.rank - 1) % self.world_size)

    def send_recv_kv(self, k, v):
        next_k, next_v = torch.empty_like(k), torch.empty_like(v)
        for send, recv in ((k, next_k), (v, next_v)):
            self.ops.append(dist.P2POp(dist.isend, send.contiguous(), self.send_rank, group=self.group))
            self.ops.append(dist.P2POp(dist.irecv, recv, self.recv_rank, group=self.group))
        self.reqs = dist.batch_isend_irecv(self.ops)
        return next_k, next_v

    def wait(self):
        for req in self.reqs:
            req.wait()
        self.reqs, self.ops = None, []


def ring_flash_attn_backward(group, block_backward, dout, q, k, v, out, lse, causal=True):
    kv_comm, d_kv_comm = RingComm(group), RingComm(group)
    dq, dk, dv = None, None, None
    next_dk, next_dv = None, None
    for step in range(kv_comm.world_size):
        if step + 1 != kv_comm.world_size:
            next_k, next_v = kv_comm.send_recv_kv(k, v)
        if step <= kv_comm.rank or not causal:
            block_dq, block_dk, block_dv = block_backward(dout, q, k, v, out, lse, causal and step == 0)
            if dq is None:
                dq, dk, dv = block_dq.float(), block_dk.float(), block_dv.float()
            else:
                dq += block_dq
                d_kv_comm.wait()
                dk = block_dk + next_dk
                dv = block_dv + next_dv
        elif step != 0:
            d_kv_comm.wait()
            dk, dv = next_dk, next_dv

        if step + 1 != kv_comm.world_size:
            kv_comm.wait()
            k, v = next_k, next_v
        next_dk, next_dv = d_kv_comm.send_recv_kv(dk, dv)

    d_kv_comm.wait()
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)  # BUG
