"""Roll a tensor whose chunks are dispatched over the context-parallel group.

SandAI-org/MagiAttention e812aa583cef, magi_attention/functional/roll.py
"""
import torch
import torch.distributed as dist


def _roll_p2p_impl(x_local, partitions, segs, chunk_to_rank, chunk_to_local_idx, chunk_size, group, seq_dim=0):
    """`group` is one of several context-parallel groups; `partitions[r]` are the chunks of its rank r."""
    cp_size = dist.get_world_size(group)
    my_rank = dist.get_rank(group)
    my_partition = partitions[my_rank]
    local_chunks = x_local.split(chunk_size, dim=seq_dim)
    output = torch.empty_like(x_local)
    output_chunks = output.split(chunk_size, dim=seq_dim)

    for out_idx, c_out in enumerate(my_partition):
        for src_cid, src_off, seg_len, dst_off in segs(c_out):
            if chunk_to_rank[src_cid] == my_rank:
                src = local_chunks[chunk_to_local_idx[src_cid]].narrow(seq_dim, src_off, seg_len)
                output_chunks[out_idx].narrow(seq_dim, dst_off, seg_len).copy_(src)

    p2p_ops = []
    recv_scatter_info = []
    for remote_rank in range(cp_size):
        if remote_rank == my_rank:
            continue
        send_pieces = [
            local_chunks[chunk_to_local_idx[src_cid]].narrow(seq_dim, src_off, seg_len)
            for c_out in partitions[remote_rank]
            for src_cid, src_off, seg_len, _ in segs(c_out)
            if chunk_to_rank[src_cid] == my_rank
        ]
        recv_dest_slices = [
            output_chunks[out_idx].narrow(seq_dim, dst_off, seg_len)
            for out_idx, c_out in enumerate(my_partition)
            for src_cid, _, seg_len, dst_off in segs(c_out)
            if chunk_to_rank[src_cid] == remote_rank
        ]
        if send_pieces:
            send_buf = torch.cat(send_pieces, dim=seq_dim).contiguous()
            p2p_ops.append(dist.P2POp(dist.isend, send_buf, remote_rank, group=group))  # BUG
        if recv_dest_slices:
            shape = list(x_local.shape)
            shape[seq_dim] = sum(s.size(seq_dim) for s in recv_dest_slices)
            recv_buf = torch.empty(shape, dtype=x_local.dtype, device=x_local.device)
            p2p_ops.append(dist.P2POp(dist.irecv, recv_buf, remote_rank, group=group))
            recv_scatter_info.append((recv_buf, recv_dest_slices))

    if p2p_ops:
        for req in dist.batch_isend_irecv(p2p_ops):
            req.wait()
    for recv_buf, slices in recv_scatter_info:
        for piece, dst in zip(recv_buf.split([s.size(seq_dim) for s in slices], dim=seq_dim), slices):
            dst.copy_(piece)
    return output
