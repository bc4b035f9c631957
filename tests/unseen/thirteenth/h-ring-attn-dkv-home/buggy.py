# Backward pass of ring attention: keys and values travel around the ring with their gradients.
import torch
import torch.distributed as dist


class RingComm:
    def __init__(self, group):
        self.group, self.rank, self.world_size = group, dist.get_rank(group), dist.get_world_size(group)
        self.send_to = dist.get_global_rank(group, (self.rank + 1) % self.world_size)
        self.recv_from = dist.get_global_rank(group, (self.rank - 1) % self.world_size)

    def rotate(self, *tensors):
        recv = [torch.empty_like(t) for t in tensors]
        ops = []
        for t, r in zip(tensors, recv):
            ops.append(dist.P2POp(dist.isend, t.contiguous(), self.send_to, group=self.group))
            ops.append(dist.P2POp(dist.irecv, r, self.recv_from, group=self.group))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return recv


def ring_backward(group, block_backward, dout, q, k, v, out, lse):
    comm = RingComm(group)
    dq = torch.zeros_like(q, dtype=torch.float32)
    dk = torch.zeros_like(k, dtype=torch.float32)
    dv = torch.zeros_like(v, dtype=torch.float32)
    for step in range(comm.world_size):
        block_dq, block_dk, block_dv = block_backward(dout, q, k, v, out, lse)
        dq += block_dq
        dk += block_dk
        dv += block_dv
        if step + 1 != comm.world_size:
            k, v, dk, dv = comm.rotate(k, v, dk, dv)
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)  # BUG
