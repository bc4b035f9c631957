#!/usr/bin/env python3
"""Every pair of tests/oracle/autograd_pairs.json written out as Python source: a custom autograd function whose forward is the one
operation and whose backward is the other, in four idioms. Writes tests/oracle/autograd.jsonl.

usage: autograd_pairs.py [--table TABLE] [--out OUT] [--show ID]

A line is {"id", "forward", "backward", "idiom", "axis", "dims", "spelling", "source", "class", "wrapper", "signatures"}, and
  dims      of an operation that has one: the tensor dim, 0 or 1 (tensors are 2-D); of an all-to-all: [dim it splits, dim it concatenates]
  spelling  which texts were taken, for looking at what fails
  wrapper   a function of one tensor (and `group` or `mesh`, if it has such a parameter) that calls `apply`
  flags, otherwise   where the class has a flag: its value in `wrapper`, and what the other value makes of the backward and the signatures
The text of an operation is chosen by a checksum of (idiom, pair, place), so a run gives the same bytes everywhere.
In a text: $x input, $g group, $n its size, $r the rank in it, $S the first rank as keyword, $d dim, $I index up to that dim,
`RET e` a return, `@op(e)` a call of the helper of another operation, $D torch.distributed, $dev a device.
"""

import argparse
import ast
import json
import pathlib
import re
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORACLE = ROOT / "tests" / "oracle"

GATHERS = {"all_gather_first_dim": 0, "all_gather_last_dim": 1}
SPLITS = {"split_first_dim": 0, "split_last_dim": 1}
SCATTERS = {"reduce_scatter_first_dim": 0, "reduce_scatter_last_dim": 1}
EXCHANGES = {"all_to_all_first_to_last": (0, 1), "all_to_all_last_to_first": (1, 0)}
DIMS = GATHERS | SPLITS | SCATTERS | EXCHANGES
LOCAL = {"identity", "scale_by_group_size", "divide_by_group_size", "keep_rank0_zero_rest"} | set(SPLITS)


class Choice:
    """Picks the same element for the same place in every run."""

    def __init__(self, *place):
        self.place = "/".join(map(str, place))

    def of(self, what, options):
        options = list(options)
        return options[zlib.crc32(f"{self.place}/{what}".encode()) // 7 % len(options)]

    def one_in(self, what, n):
        return self.of(what, range(n)) == 0


# --- texts of the operations -------------------------------------------------------------------------------------------------------

IDENTITY = {
    "itself": "RET $x",
    "view": "RET $x.view_as($x)",
    "clone": "RET $x.clone()",
    "contiguous": "RET $x.contiguous()",
}
SCALE = {
    "right": "RET $x * $n",
    "left": "RET $n * $x",
    "method": "RET $x.mul($n)",
    "torch": "RET torch.mul($x, $n)",
    "inplace": "output = $x.clone()\noutput *= $n\nRET output",
}
DIVIDE = {
    "operator": "RET $x / $n",
    "method": "RET $x.div($n)",
    "reciprocal": "RET $x * (1.0 / $n)",
    "torch": "RET torch.div($x, $n)",
    "inplace": "output = $x.clone()\noutput.div_($n)\nRET output",
    "scale": "scale = 1.0 / $n\nRET $x.mul(scale)",
}
KEEP = {
    "ternary": "RET $x if $r == 0 else torch.zeros_like($x)",
    "times": "RET $x * ($r == 0)",
    "reassign": "if $r != 0:\n    $x = torch.zeros_like($x)\nRET $x",
    "returns": "if $r == 0:\n    RET $x\nRET torch.zeros_like($x)",
    "copy": "output = torch.zeros_like($x)\nif $r == 0:\n    output.copy_($x)\nRET output",
    "zero": "output = $x.clone()\nif $r > 0:\n    output.zero_()\nRET output",
    "new": "RET $x.new_zeros($x.shape) if $r else $x",
    "named": "is_first = $r == 0\nRET $x * is_first",
    "int": "RET $x * int($r == 0)",
}
SPLIT = {
    "chunk": "RET $x.chunk($n, dim=$d)[$r].contiguous()",
    "torch chunk": "RET torch.chunk($x, $n, dim=$d)[$r]",
    "split": "pieces = torch.split($x, $x.shape[$d] // $n, dim=$d)\nRET pieces[$r].contiguous()",
    "method split": "size = $x.size($d) // $n\nRET $x.split(size, dim=$d)[$r].contiguous()",
    "narrow": "size = $x.size($d) // $n\nRET $x.narrow($d, $r * size, size).contiguous()",
    "torch narrow": "size = $x.shape[$d] // $n\nstart = size * $r\nRET torch.narrow($x, $d, start, size)",
    "slice": "size = $x.shape[$d] // $n\nRET $x[$I$r * size : ($r + 1) * size]",
    "offset": "size = $x.size()[$d] // $n\nstart = $r * size\nRET $x[$Istart : start + size].contiguous()",
    "list": "pieces = list($x.chunk($n, $d))\nRET pieces[$r].clone()",
    "tensor_split": "RET $x.tensor_split($n, dim=$d)[$r].contiguous()",
}
LOCAL_TEXTS = {
    "identity": IDENTITY,
    "scale_by_group_size": SCALE,
    "divide_by_group_size": DIVIDE,
    "keep_rank0_zero_rest": KEEP,
    "split_first_dim": SPLIT,
    "split_last_dim": SPLIT,
}
EMPTY = ", dtype=$x.dtype, device=$dev"

MEGATRON = LOCAL_TEXTS | {
    "all_reduce": {
        "in place": "$x = $x.contiguous()\n$D.all_reduce($x, group=$g)\nRET $x",
        "output": "output = $x.contiguous()\n$D.all_reduce(output, group=$g)\nRET output",
        "if not contiguous": "if not $x.is_contiguous():\n    $x = $x.contiguous()\n$D.all_reduce($x, $D.ReduceOp.SUM, group=$g)\nRET $x",
        "clone": "output = $x.contiguous().clone()\n$D.all_reduce(output, op=$D.ReduceOp.SUM, group=$g)\nRET output",
    },
    "all_reduce_mean": {
        "after": "$x = $x.contiguous()\n$D.all_reduce($x, group=$g)\nRET $x / $n",
        "div_": "output = $x.contiguous().clone()\n$D.all_reduce(output, group=$g)\noutput.div_($n)\nRET output",
        "before": "output = $x.contiguous() / $n\n$D.all_reduce(output, group=$g)\nRET output",
        "avg": "output = $x.contiguous().clone()\n$D.all_reduce(output, op=$D.ReduceOp.AVG, group=$g)\nRET output",
        "helper": "output = @all_reduce($x)\nRET output / $n",
    },
    "broadcast_from_rank0": {
        "clone": "output = $x.contiguous().clone()\n$D.broadcast(output, $S, group=$g)\nRET output",
        "same name": "$x = $x.contiguous().clone()\n$D.broadcast($x, $S, group=$g)\nRET $x",
    },
    "all_gather_first_dim": {
        "buffer": "dim_size = list($x.size())\ndim_size[0] = dim_size[0] * $n\noutput = torch.empty(dim_size" + EMPTY + ")\n"
        "$G(output, $x.contiguous(), group=$g)\nRET output",
        "split sizes": "dim_size = list($x.size())\nrows = dim_size[0]\ndim_size[0] = rows * $n\noutput = torch.empty(dim_size" + EMPTY + ")\n"
        "output_tensor_list = list(torch.split(output, rows, dim=0))\n$D.all_gather(output_tensor_list, $x.contiguous(), group=$g)\nRET output",
        "list": "$x = $x.contiguous()\ntensor_list = [torch.empty_like($x) for _ in range($n)]\n$D.all_gather(tensor_list, $x, group=$g)\n"
        "RET torch.cat(tensor_list, dim=0).contiguous()",
    },
    "all_gather_last_dim": {
        "buffer": "dim_size = list($x.size())\ndim_size[0] = dim_size[0] * $n\noutput = torch.empty(dim_size" + EMPTY + ")\n"
        "$G(output, $x.contiguous(), group=$g)\ntensor_list = output.chunk($n, dim=0)\noutput = torch.cat(tensor_list, dim=$d).contiguous()\nRET output",
        "list": "last_dim = $x.dim() - 1\n$x = $x.contiguous()\ntensor_list = [torch.empty_like($x) for _ in range($n)]\ntensor_list[$r] = $x\n"
        "$D.all_gather(tensor_list, $x, group=$g)\noutput = torch.cat(tensor_list, dim=last_dim).contiguous()\nRET output",
        "helper": "output = @all_gather_first_dim($x)\nRET torch.cat(output.chunk($n, dim=0), dim=$d).contiguous()",
    },
    "split_first_dim": {
        "slice": 'dim_size = $x.size()[0]\nassert dim_size % $n == 0, "First dimension should be divisible by tensor parallel size"\n'
        "local_dim_size = dim_size // $n\ndim_offset = $r * local_dim_size\noutput = $x[dim_offset : dim_offset + local_dim_size].contiguous()\nRET output",
        "list": "input_list = torch.split($x, $x.size(0) // $n, dim=0)\noutput = input_list[$r].contiguous()\nRET output",
        "chunk": "RET torch.chunk($x, $n, dim=0)[$r].contiguous()",
    },
    "split_last_dim": {
        "list": "last_dim = $x.dim() - 1\nlast_dim_size = $x.size()[last_dim] // $n\ninput_list = torch.split($x, last_dim_size, dim=last_dim)\n"
        "output = input_list[$r].contiguous()\nRET output",
        "function": "input_list = split_tensor_along_last_dim($x, $n)\n# Note: torch.split does not create contiguous tensors by default.\n"
        "output = input_list[$r].contiguous()\nRET output",
        "chunk": "input_list = $x.chunk($n, dim=-1)\nRET input_list[$r].contiguous()",
    },
    "reduce_scatter_first_dim": {
        "buffer": "dim_size = list($x.size())\nassert dim_size[0] % $n == 0\ndim_size[0] = dim_size[0] // $n\n"
        "output = torch.empty(dim_size" + EMPTY + ")\n$C(output, $x.contiguous(), group=$g)\nRET output",
        "list": "input_tensor_list = list(torch.split($x.contiguous(), $x.size(0) // $n, dim=0))\noutput = torch.empty_like(input_tensor_list[$r])\n"
        "$D.reduce_scatter(output, input_tensor_list, group=$g)\nRET output",
    },
    "reduce_scatter_last_dim": {
        "helper": "target_shape = list($x.size())\ntarget_shape[-1] = target_shape[-1] // $n\n$x = $x.reshape(-1, $x.shape[-1])\n"
        "split_tensors = torch.split($x, split_size_or_sections=$x.shape[-1] // $n, dim=1)\nconcat_tensor = torch.cat(split_tensors, dim=0)\n"
        "output = @reduce_scatter_first_dim(concat_tensor).reshape(target_shape)\nRET output",
        "chunks": "concat_tensor = torch.cat($x.chunk($n, dim=$d), dim=0)\nRET @reduce_scatter_first_dim(concat_tensor)",
        "transpose": "output = @reduce_scatter_first_dim($x.transpose(0, -1).contiguous())\nRET output.transpose(0, -1).contiguous()",
        "own": "concat_tensor = torch.cat(torch.chunk($x, $n, dim=$d), dim=0)\ndim_size = list(concat_tensor.size())\ndim_size[0] = dim_size[0] // $n\n"
        "output = torch.empty(dim_size" + EMPTY + ")\n$C(output, concat_tensor, group=$g)\nRET output",
    },
    "all_to_all": {
        "empty_like": "$x = $x.contiguous()\noutput = torch.empty_like($x)\n$D.all_to_all_single(output, $x, group=$g)\nRET output",
        "keywords": "$x = $x.contiguous()\noutput = torch.empty_like($x)\n$D.all_to_all_single(\n    output,\n    $x,\n    output_split_sizes=None,\n"
        "    input_split_sizes=None,\n    group=$g,\n)\nRET output",
    },
    "all_to_all_first_to_last": {
        "hp2sp": "input_exchanged = @all_to_all($x)\nsplit_tensors = torch.split(input_exchanged, input_exchanged.shape[0] // $n, dim=0)\n"
        "RET torch.cat(split_tensors, dim=$d)",
        "chunk": "output = @all_to_all($x)\nRET torch.cat(output.chunk($n, dim=0), dim=$d).contiguous()",
        "own": "$x = $x.contiguous()\noutput = torch.empty_like($x)\n$D.all_to_all_single(output, $x, group=$g)\n"
        "tensor_list = torch.chunk(output, $n, dim=0)\nRET torch.cat(tensor_list, dim=$d)",
    },
    "all_to_all_last_to_first": {
        "sp2hp": "$x = $x.reshape(-1, $x.shape[-1])\nsplit_tensors = torch.split($x, split_size_or_sections=$x.shape[-1] // $n, dim=1)\n"
        "concat_tensor = torch.cat(split_tensors, dim=0)\noutput = @all_to_all(concat_tensor)\nRET output",
        "chunk": "concat_tensor = torch.cat($x.chunk($n, dim=$s), dim=0).contiguous()\nRET @all_to_all(concat_tensor)",
        "own": "concat_tensor = torch.cat(torch.chunk($x, $n, dim=$s), dim=0)\noutput = torch.empty_like(concat_tensor)\n"
        "$D.all_to_all_single(output, concat_tensor, group=$g)\nRET output",
    },
}
HELPERS = {  # names as in Megatron and its descendants, and what the helper says of itself
    "all_reduce": (["_reduce", "_all_reduce"], "All-reduce the input tensor across the group."),
    "all_reduce_mean": (["_reduce_mean", "_average"], "Mean of the input tensor over the group."),
    "scale_by_group_size": (["_scale"], "Multiply by the number of ranks."),
    "divide_by_group_size": (["_unscale", "_divide"], "Divide by the number of ranks."),
    "keep_rank0_zero_rest": (["_keep_first", "_mask_rank"], "The input on the first rank, zeros elsewhere."),
    "broadcast_from_rank0": (["_broadcast"], "The input of the first rank of the group."),
    "all_gather_first_dim": (["_gather_along_first_dim", "_gather_rows"], "Gather tensors and concatenate along the first dimension."),
    "all_gather_last_dim": (["_gather_along_last_dim", "_gather"], "Gather tensors and concatenate along the last dimension."),
    "split_first_dim": (["_split_along_first_dim", "_split_rows"], "Split the tensor along its first dimension and keep this rank's part."),
    "split_last_dim": (["_split_along_last_dim", "_split"], "Split the tensor along its last dimension and keep this rank's part."),
    "reduce_scatter_first_dim": (["_reduce_scatter_along_first_dim", "_reduce_scatter_rows"], "Reduce-scatter the tensor on the first dimension."),
    "reduce_scatter_last_dim": (["_reduce_scatter_along_last_dim"], "Reduce-scatter the tensor on the last dimension."),
    "all_to_all": (["_all_to_all", "_exchange"], "Piece i of the first dimension goes to rank i."),
    "all_to_all_first_to_last": (["_all_to_all_hp2sp", "_rows_to_columns"], "All-to-all from the first dimension to the last."),
    "all_to_all_last_to_first": (["_all_to_all_sp2hp", "_columns_to_rows"], "All-to-all from the last dimension to the first."),
}

FUNCTIONAL = LOCAL_TEXTS | {
    "all_reduce": {
        "plain": 'RET $F.all_reduce($x, "sum", $g)',
        "wait": 'output = $F.all_reduce($x, "sum", group=$g)\nRET $F.wait_tensor(output)',
        "isinstance": 'output = $F.all_reduce($x, reduceOp="sum", group=$g)\nif isinstance(output, $F.AsyncCollectiveTensor):\n    output = output.wait()\nRET output',
        "nested": 'RET $F.wait_tensor($F.all_reduce($x.contiguous(), "sum", group=$g))',
    },
    "all_reduce_mean": {
        "avg": 'RET $F.all_reduce($x, "avg", $g)',
        "divide": 'RET $F.all_reduce($x, "sum", $g) / $n',
        "wait": 'output = $F.all_reduce($x, reduceOp="sum", group=$g)\noutput = $F.wait_tensor(output)\nRET output.div($n)',
        "before": 'RET $F.all_reduce($x / $n, "sum", group=$g)',
    },
    "broadcast_from_rank0": {
        "functional": "RET $F.broadcast($x, 0, $g)",
        "keywords": "output = $F.broadcast($x, src=0, group=$g)\nRET $F.wait_tensor(output)",
        "raw": "output = $x.contiguous().clone()\n$D.broadcast(output, $S, group=$g)\nRET output",
    },
    "all_gather": {
        "plain": "RET $F.all_gather_tensor($x, $d, $g)",
        "keywords": "RET $F.all_gather_tensor($x, gather_dim=$d, group=$g)",
        "contiguous": "output = $F.all_gather_tensor($x.contiguous(), gather_dim=$d, group=$g)\nRET $F.wait_tensor(output)",
        "isinstance": "output = $F.all_gather_tensor($x, gather_dim=$d, group=$g)\nif isinstance(output, $F.AsyncCollectiveTensor):\n"
        "    output = output.wait()\nRET output",
        "rows": "output = $F.wait_tensor($F.all_gather_tensor($x, 0, $g))\nRET torch.cat(output.chunk($n, dim=0), dim=$d)",
    },
    "reduce_scatter": {
        "plain": 'RET $F.reduce_scatter_tensor($x, "sum", $d, $g)',
        "keywords": 'RET $F.reduce_scatter_tensor($x, "sum", scatter_dim=$d, group=$g)',
        "all keywords": 'output = $F.reduce_scatter_tensor($x, reduceOp="sum", scatter_dim=$d, group=$g)\nRET $F.wait_tensor(output)',
        "isinstance": 'output = $F.reduce_scatter_tensor($x.contiguous(), "sum", scatter_dim=$d, group=$g)\n'
        "if isinstance(output, $F.AsyncCollectiveTensor):\n    output = output.wait()\nRET output",
        "rows": 'rows = torch.cat($x.chunk($n, dim=$d), dim=0)\nRET $F.reduce_scatter_tensor(rows, "sum", 0, $g)',
    },
    "all_to_all_first_to_last": {
        "plain": "output = $F.all_to_all_single($x.contiguous(), None, None, $g)\nRET torch.cat(output.chunk($n, dim=0), dim=$d)",
        "keywords": "output = $F.all_to_all_single($x.contiguous(), output_split_sizes=None, input_split_sizes=None, group=$g)\n"
        "output = $F.wait_tensor(output)\nRET torch.cat(torch.chunk(output, $n), dim=$d)",
        "sizes": "sizes = [$x.shape[0] // $n] * $n\noutput = $F.all_to_all_single($x.contiguous(), sizes, sizes, $g)\n"
        "RET torch.cat($F.wait_tensor(output).split(sizes, dim=0), dim=$d)",
    },
    "all_to_all_last_to_first": {
        "plain": "pieces = torch.cat($x.chunk($n, dim=$s), dim=0)\nRET $F.all_to_all_single(pieces, None, None, $g)",
        "wait": "pieces = torch.chunk($x, $n, dim=$s)\noutput = $F.all_to_all_single(torch.cat(pieces), None, None, group=$g)\nRET $F.wait_tensor(output)",
        "sizes": "sizes = [$x.shape[0]] * $n\nrows = torch.cat(list($x.chunk($n, dim=$s)), dim=0)\n"
        "output = $F.all_to_all_single(rows, output_split_sizes=sizes, input_split_sizes=sizes, group=$g)\nRET $F.wait_tensor(output)",
    },
}

ROWS = "$n * $x.shape[0], $x.shape[1]"
BUFFERS = LOCAL_TEXTS | {
    "all_reduce": {
        "handle": "output = $x.contiguous().clone()\nhandle = $D.all_reduce(output, group=$g, async_op=True)\nhandle.wait()\nRET output",
        "in place": "$x = $x.contiguous()\n$D.all_reduce($x, op=$D.ReduceOp.SUM, group=$g)\nRET $x",
        "copy": "buffer = torch.empty($x.shape, dtype=$x.dtype, device=$dev)\nbuffer.copy_($x)\n$D.all_reduce(buffer, group=$g)\nRET buffer",
        "chained": "output = $x.contiguous().clone()\n$D.all_reduce(output, group=$g, async_op=True).wait()\nRET output",
    },
    "all_reduce_mean": {
        "handle": "output = $x.contiguous().clone()\nhandle = $D.all_reduce(output, group=$g, async_op=True)\nhandle.wait()\noutput /= $n\nRET output",
        "before": "output = ($x / $n).contiguous()\nwork = $D.all_reduce(output, group=$g, async_op=True)\nwork.wait()\nRET output",
        "avg": "output = $x.contiguous().clone()\nwork = $D.all_reduce(output, op=$D.ReduceOp.AVG, group=$g, async_op=True)\nwork.wait()\nRET output",
    },
    "broadcast_from_rank0": {
        "plain": "buffer = $x.contiguous().clone()\n$D.broadcast(buffer, $S, group=$g)\nRET buffer",
        "handle": "buffer = $x.contiguous().clone()\nhandle = $D.broadcast(buffer, $S, group=$g, async_op=True)\nhandle.wait()\nRET buffer",
        "copy": "buffer = torch.empty_like($x, memory_format=torch.contiguous_format)\nbuffer.copy_($x)\n$D.broadcast(buffer, $S, group=$g)\nRET buffer",
    },
    "all_gather": {
        "list": "$x = $x.contiguous()\npieces = [torch.empty_like($x) for _ in range($n)]\n$D.all_gather(pieces, $x, group=$g)\nRET torch.cat(pieces, dim=$d)",
        "zeros": "pieces = [torch.zeros($x.shape, dtype=$x.dtype, device=$dev) for _ in range($n)]\n"
        "$D.all_gather(pieces, $x.contiguous(), group=$g)\nRET torch.cat(pieces, dim=$d).contiguous()",
        "handle": "$x = $x.contiguous()\npieces = [torch.empty_like($x) for _ in range($n)]\nhandle = $D.all_gather(pieces, $x, group=$g, async_op=True)\n"
        "handle.wait()\nRET torch.cat(pieces, $d)",
        "tuple": "pieces = list(torch.empty(" + ROWS + EMPTY + ").chunk($n, dim=0))\n$D.all_gather(pieces, $x.contiguous(), group=$g)\n"
        "RET torch.cat(tuple(pieces), dim=$d)",
    },
    "all_gather_first_dim": {
        "buffer": "output = torch.empty(" + ROWS + EMPTY + ")\n$D.all_gather_into_tensor(output, $x.contiguous(), group=$g)\nRET output",
        "buffer handle": "output = $x.new_empty(($n * $x.size(0),) + tuple($x.shape[1:]))\n"
        "handle = $D.all_gather_into_tensor(output, $x.contiguous(), group=$g, async_op=True)\nhandle.wait()\nRET output",
        "views": "output = torch.empty(" + ROWS + EMPTY + ")\n$D.all_gather(list(output.chunk($n, dim=0)), $x.contiguous(), group=$g)\nRET output",
    },
    "all_gather_last_dim": {
        "buffer": "buffer = torch.empty(" + ROWS + EMPTY + ")\n$D.all_gather_into_tensor(buffer, $x.contiguous(), group=$g)\n"
        "RET torch.cat(buffer.chunk($n, dim=0), dim=$d)",
        "buffer handle": "buffer = $x.new_empty(($n * $x.size(0), $x.size(1)))\nhandle = $D.all_gather_into_tensor(buffer, $x.contiguous(), group=$g, async_op=True)\n"
        "handle.wait()\nRET torch.cat(torch.split(buffer, $x.size(0), dim=0), dim=$d)",
    },
    "reduce_scatter": {
        "list": "pieces = [piece.contiguous() for piece in $x.chunk($n, dim=$d)]\noutput = torch.empty_like(pieces[$r])\n"
        "$D.reduce_scatter(output, pieces, group=$g)\nRET output",
        "split list": "pieces = [p.contiguous() for p in torch.split($x, $x.shape[$d] // $n, dim=$d)]\noutput = torch.empty_like(pieces[0])\n"
        "$D.reduce_scatter(output, pieces, op=$D.ReduceOp.SUM, group=$g)\nRET output",
        "handle": "pieces = [piece.contiguous() for piece in torch.chunk($x, $n, dim=$d)]\noutput = torch.empty_like(pieces[0])\n"
        "handle = $D.reduce_scatter(output, pieces, group=$g, async_op=True)\nhandle.wait()\nRET output",
        "buffer": "rows = torch.cat($x.chunk($n, dim=$d), dim=0).contiguous()\n"
        "output = torch.empty(rows.shape[0] // $n, rows.shape[1], dtype=rows.dtype, device=rows.device)\n"
        "$D.reduce_scatter_tensor(output, rows, group=$g)\nRET output",
    },
    "reduce_scatter_first_dim": {
        "own buffer": "output = torch.empty($x.shape[0] // $n, $x.shape[1]" + EMPTY + ")\n$D.reduce_scatter_tensor(output, $x.contiguous(), group=$g)\nRET output",
        "buffer handle": "output = $x.new_empty(($x.size(0) // $n, $x.size(1)))\n"
        "handle = $D.reduce_scatter_tensor(output, $x.contiguous(), group=$g, async_op=True)\nhandle.wait()\nRET output",
    },
    "all_to_all_any": {
        "list": "inputs = [piece.contiguous() for piece in $x.chunk($n, dim=$s)]\noutputs = [torch.empty_like(piece) for piece in inputs]\n"
        "$D.all_to_all(outputs, inputs, group=$g)\nRET torch.cat(outputs, dim=$d)",
        "tensor_split": "inputs = [t.contiguous() for t in torch.tensor_split($x, $n, $s)]\noutputs = [torch.empty_like(inputs[0]) for _ in range($n)]\n"
        "$D.all_to_all(outputs, inputs, group=$g)\nRET torch.cat(outputs, dim=$d).contiguous()",
        "handle": "inputs = [piece.contiguous() for piece in torch.split($x, $x.shape[$s] // $n, dim=$s)]\noutputs = [torch.empty_like(piece) for piece in inputs]\n"
        "handle = $D.all_to_all(outputs, inputs, group=$g, async_op=True)\nhandle.wait()\nRET torch.cat(outputs, dim=$d)",
    },
    "all_to_all_first_to_last": {
        "single": "output = torch.empty_like($x, memory_format=torch.contiguous_format)\n$D.all_to_all_single(output, $x.contiguous(), group=$g)\n"
        "RET torch.cat(output.chunk($n, dim=0), dim=$d)",
    },
    "all_to_all_last_to_first": {
        "single": "rows = torch.cat($x.chunk($n, dim=$s), dim=0)\noutput = torch.empty_like(rows)\n"
        "handle = $D.all_to_all_single(output, rows, group=$g, async_op=True)\nhandle.wait()\nRET output",
    },
}

MIXED = LOCAL_TEXTS | {
    "all_reduce": {
        "keywords": "output = $x.contiguous().clone()\n$D.all_reduce(tensor=output, op=$D.ReduceOp.SUM, group=$g)\nRET output",
        "in place": "$x = $x.contiguous()\n$D.all_reduce($x, group=$g)\nRET $x",
        "two steps": "size = $x.shape[0] // $n\nbuffer = torch.empty(size, $x.shape[1]" + EMPTY + ")\n$D.reduce_scatter_tensor(buffer, $x.contiguous(), group=$g)\n"
        "output = torch.empty_like($x, memory_format=torch.contiguous_format)\n$D.all_gather_into_tensor(output, buffer, group=$g)\nRET output",
        "functional": FUNCTIONAL["all_reduce"]["wait"],
        "handle": BUFFERS["all_reduce"]["handle"],
    },
    "all_reduce_mean": {
        "keywords": "output = $x.contiguous().clone()\n$D.all_reduce(tensor=output, group=$g)\nRET torch.div(input=output, other=$n)",
        "avg": "output = $x.contiguous().clone()\n$D.all_reduce(output, op=$D.ReduceOp.AVG, group=$g)\nRET output",
        "in place": "$x = $x.contiguous()\n$D.all_reduce($x, group=$g)\n$x /= $n\nRET $x",
        "functional": FUNCTIONAL["all_reduce_mean"]["divide"],
    },
    "broadcast_from_rank0": {
        "keywords": "output = $x.contiguous().clone()\n$D.broadcast(tensor=output, $S, group=$g)\nRET output",
        "functional": FUNCTIONAL["broadcast_from_rank0"]["keywords"],
    },
    "split_first_dim": SPLIT | {"keywords": "RET torch.chunk(input=$x, chunks=$n, dim=$d)[$r].contiguous()"},
    "split_last_dim": SPLIT | {"keywords": "RET torch.chunk(input=$x, chunks=$n, dim=$d)[$r].contiguous()"},
    "all_gather": {
        "list": "$x = $x.contiguous()\npieces = [torch.empty_like($x) for _ in range($n)]\n$D.all_gather(tensor_list=pieces, tensor=$x, group=$g)\n"
        "RET torch.cat(tensors=pieces, dim=$d)",
        "functional": FUNCTIONAL["all_gather"]["keywords"],
        "keywords": "output = torch.empty(" + ROWS + EMPTY + ")\n"
        "$D.all_gather_into_tensor(output_tensor=output, input_tensor=$x.contiguous(), group=$g)\nRET torch.cat(output.chunk($n, dim=0), dim=$d)",
    },
    "reduce_scatter": {
        "list": BUFFERS["reduce_scatter"]["list"],
        "functional": FUNCTIONAL["reduce_scatter"]["keywords"],
        "keywords": "rows = torch.cat($x.chunk($n, dim=$d), dim=0)\nsize = rows.shape[0] // $n\noutput = torch.empty_like(rows[:size])\n"
        "$D.reduce_scatter_tensor(output=output, input=rows, group=$g)\nRET output",
        "two steps": "output = $x.contiguous().clone()\n$D.all_reduce(output, group=$g)\nsize = output.shape[$d] // $n\n"
        "RET output.narrow($d, $r * size, size).contiguous()",
    },
    "all_to_all_any": {"list": BUFFERS["all_to_all_any"]["list"]},
    "all_to_all_first_to_last": {
        "permute": "rows, columns = $x.shape[0] // $n, $x.shape[1]\ninputs = $x.reshape($n, rows, columns).contiguous()\noutput = torch.empty_like(inputs)\n"
        "$D.all_to_all_single(output, inputs, group=$g)\nRET output.permute(1, 0, 2).reshape(rows, $n * columns)",
        "functional": FUNCTIONAL["all_to_all_first_to_last"]["plain"],
    },
    "all_to_all_last_to_first": {
        "permute": "rows, columns = $x.shape[0], $x.shape[1] // $n\ninputs = $x.reshape(rows, $n, columns).permute(1, 0, 2).contiguous()\n"
        "output = torch.empty_like(inputs)\n$D.all_to_all_single(output, inputs, group=$g)\nRET output.reshape($n * rows, columns)",
        "functional": FUNCTIONAL["all_to_all_last_to_first"]["wait"],
    },
}


def texts(idiom_texts, op):
    """The texts of an operation: its own, and those of its family written for any dim."""
    family = "all_gather" if op in GATHERS else "reduce_scatter" if op in SCATTERS else "all_to_all_any" if op in EXCHANGES else None
    return idiom_texts.get(family, {}) | idiom_texts.get(op, {})


# --- from a text to statements -----------------------------------------------------------------------------------------------------


class Group:
    """How a group is named where a text stands: an expression, its size, the rank in it, the first rank."""

    def __init__(self, expression, size, rank, first, local=True):
        self.expression, self.size, self.rank, self.first = expression, size, rank, first
        self.local = local  # size and rank are worth a name

    @staticmethod
    def of(expression, choice, module, functions=True):
        size = [f"{module}.get_world_size({expression})", f"{module}.get_world_size(group={expression})"]
        rank = [f"{module}.get_rank({expression})", f"{module}.get_rank(group={expression})"]
        if functions:
            size.append(f"{expression}.size()")
            rank.append(f"{expression}.rank()")
        first = [f"src={module}.get_global_rank({expression}, 0)", f"src={module}.get_process_group_ranks({expression})[0]", "group_src=0"]
        at = choice.of("size and rank", range(len(size)))
        return Group(expression, size[at], rank[at], choice.of("first rank", first))

    @staticmethod
    def accessors(choice, prefix=""):
        return Group(
            f"{prefix}get_tensor_model_parallel_group()",
            f"{prefix}get_tensor_model_parallel_world_size()",
            f"{prefix}get_tensor_model_parallel_rank()",
            f"src={prefix}get_tensor_model_parallel_src_rank()",
        )


def spelled_dim(op, choice, x):
    """The dim an operation produces or splits, and the one it splits before, as they are written."""
    last = choice.of("last dim", ["-1", "-1", "1", f"{x}.dim() - 1"])
    spell = {0: "0", 1: last}
    dims = DIMS.get(op, 0)
    return (spell[dims[1]], spell[dims[0]]) if isinstance(dims, tuple) else (spell[dims], spell[dims])


def statements(op, text, choice, x, group, module, functional="funcol", dim=None, device=None, bypass=False):
    """A text as lines of Python, `RET` and `@` still in place."""
    device = device or f"{x}.device"
    d, s = spelled_dim(op, choice, x)
    index = "" if DIMS.get(op) == 0 else choice.of("index", [":, ", "..., "])
    if dim:
        d = s = dim
    prelude = []
    if bypass and op != "identity":
        text = "if $n == 1:\n    RET $x\n" + text

    def name(token, expression, local):
        nonlocal text
        if not expression.isidentifier() and group.local and (text.count(token) > 1 or (token in text and choice.one_in(token, 2))):
            prelude.append(f"{local} = {expression}")
            expression = local
        return expression

    size = name("$n", group.size, "world_size")
    rank = name("$r", group.rank, "rank")
    expression = group.expression
    if expression.endswith(")") and text.count("$g") + len(re.findall(r"@\w+\(", text)) > 1:
        prelude.insert(0, f"group = {expression}")
        expression = "group"
    tokens = {"$x": x, "$g": expression, "$n": size, "$r": rank, "$S": group.first, "$dev": device, "$d": d, "$s": s, "$I": index}
    tokens |= {"$D": module, "$F": functional, "$G": f"{module}.all_gather_into_tensor", "$C": f"{module}.reduce_scatter_tensor"}
    if functional == "":
        tokens["$F."] = ""
    if module == "torch.distributed" and choice.one_in("dist_func", 2):
        tokens |= {"$G": "dist_all_gather_func", "$C": "dist_reduce_scatter_func"}
    text = "\n".join(prelude + [text])
    for token in sorted(tokens, key=len, reverse=True):
        text = text.replace(token, tokens[token])
    if group.expression == "":  # the default group: the argument is left out
        text = re.sub(r",? *group=(?=[,)])", "", text)
        text = text.replace("(None)", "()")
    return text.split("\n")


def returning(lines, wrap=lambda e: e):
    """`RET e` as a return; `wrap` completes the tuple of a backward."""
    out = []
    for line in lines:
        indent, mark, expression = line.partition("RET ")
        if mark:
            out.append(f"{indent}return {wrap(expression)}")
        else:
            out.append(line)
    return out


def gradients(count, at, choice):
    """How a backward returns: the gradient of the tensor at `at` of `count` arguments, None for the others."""
    if count == 1:
        return lambda e: e
    brackets = choice.one_in("brackets", 3)

    def wrap(e):
        e = f"({e})" if " if " in e else e
        text = ", ".join(e if i == at else "None" for i in range(count))
        return f"({text})" if brackets else text

    return wrap


def indented(lines, by=1):
    return ["    " * by + line if line else line for line in lines]


def method(decorators, signature, body):
    return indented([*decorators, f"def {signature}:", *indented(body)])


def names_of(path):
    """Every dotted prefix of names a source uses."""
    used = set()
    for node in ast.walk(path):
        if isinstance(node, ast.Name):
            used.add(node.id)
    return used


IMPORTS = {
    "dist": "import torch.distributed as dist",
    "once_differentiable": "from torch.autograd.function import once_differentiable",
    "Function": "from torch.autograd import Function",
    "autograd": "from torch import autograd",
    "parallel_state": "from megatron.core import parallel_state",
    "mpu": "from megatron.core import mpu",
    "get_tensor_model_parallel_group_if_none": "from megatron.core.utils import get_tensor_model_parallel_group_if_none",
}
ACCESSORS = ["get_tensor_model_parallel_group", "get_tensor_model_parallel_rank", "get_tensor_model_parallel_src_rank", "get_tensor_model_parallel_world_size"]
FUNCTIONAL_IMPORTS = {
    "funcol": "import torch.distributed._functional_collectives as funcol",
    "fc": "from torch.distributed import _functional_collectives as fc",
    "ft_c": "import torch.distributed._functional_collectives as ft_c",
}
FUNCTIONAL_NAMES = ["AsyncCollectiveTensor", "all_gather_tensor", "all_reduce", "all_to_all_single", "broadcast", "reduce_scatter_tensor", "wait_tensor"]
DIST_FUNCS = {
    "dist_all_gather_func": "dist_all_gather_func = torch.distributed.all_gather_into_tensor",
    "dist_reduce_scatter_func": "dist_reduce_scatter_func = torch.distributed.reduce_scatter_tensor",
}
SPLIT_FUNCTION = '''\
def split_tensor_along_last_dim(tensor, num_partitions):
    """Split a tensor along its last dimension."""
    last_dim = tensor.dim() - 1
    last_dim_size = tensor.size()[last_dim] // num_partitions
    return torch.split(tensor, last_dim_size, dim=last_dim)'''


def file(directives, blocks, choice):
    """A whole file: the axis, the imports the blocks need, the blocks."""
    body = "\n\n\n".join("\n".join(block) for block in blocks)
    used = names_of(ast.parse(body))
    head = ["import torch"] if "torch" in used else []
    if "torch.distributed." in body and "dist" not in used:
        head.append("import torch.distributed")
    head += [line for name, line in IMPORTS.items() if name in used]
    head += [line for name, line in FUNCTIONAL_IMPORTS.items() if name in used]
    accessors = sorted(used & set(ACCESSORS))
    if accessors:
        head.append(f"from megatron.core.parallel_state import {', '.join(accessors)}")
    functional = sorted(used & set(FUNCTIONAL_NAMES))
    if functional:
        head.append(f"from torch.distributed._functional_collectives import {', '.join(functional)}")
    head.sort(key=lambda line: (line != "import torch", line))
    functions = [line for name, line in DIST_FUNCS.items() if name in used]
    if functions:
        head += ["", *functions]
    first = ["mesh dense = tp", *directives]
    comments = [f"# spmd: {'; '.join(first)}"] if choice.one_in("one comment", 2) else [f"# spmd: {clause}" for clause in first]
    if "split_tensor_along_last_dim" in used:
        body = SPLIT_FUNCTION + "\n\n\n" + body
    return "\n".join([*comments, *head, "", "", body, ""])


class Pair:
    """One function to be written: which operations, in which idiom, under which names."""

    def __init__(self, number, row, table, idiom):
        self.number, self.idiom, self.table = number, idiom, table
        self.forward, self.backward, self.signatures = row["forward"], row["backward"], row["signatures"]
        self.choice = Choice(idiom, self.forward, self.backward)
        self.name = self.choice.of("class", ["_Region{:03}", "_Mapping{:03}", "Func{:03}"]).format(number)
        self.wrapper = f"region_{number:03}"
        self.spelling, self.extra = [], {}

    def part(self, place):
        return Choice(self.idiom, self.forward, self.backward, place)

    def text(self, idiom_texts, op, place, without=()):
        options = {tag: text for tag, text in texts(idiom_texts, op).items() if not any(w in text for w in without)}
        tag = self.part(place).of("text", options)
        self.spelling.append(f"{place}: {tag}")
        return options[tag]

    def row(self, source):
        dims = {place: DIMS[op] for place, op in (("forward", self.forward), ("backward", self.backward)) if op in DIMS}
        return {
            "id": f"{self.idiom}-{self.number:03}",
            "forward": self.forward,
            "backward": self.backward,
            "idiom": self.idiom,
            "axis": "tp",
            "dims": dims,
            **self.extra,
            "spelling": ", ".join(self.spelling),
            "source": source,
            "class": self.name,
            "wrapper": self.wrapper,
            "signatures": self.signatures,
        }

    def base(self):
        return self.choice.of("base", ["torch.autograd.Function", "torch.autograd.Function", "Function", "autograd.Function"])

    def function(self, name, signature, call):
        """The function that calls `apply`."""
        return [f"def {self.wrapper}({signature}):", f"    return {self.name}.apply({call})"]


# --- the idioms --------------------------------------------------------------------------------------------------------------------


def megatron(pair):
    """Module-level helpers with raw collectives, as in megatron core/tensor_parallel/mappings.py."""
    choice = pair.choice
    mode = choice.of("group", ["argument", "accessor in helpers", "accessor in wrapper", "if none"])
    module, x = "torch.distributed", "input_"
    passed = mode != "accessor in helpers"
    helpers = {}

    def helper(op):
        """Writes the helper of an operation, and those it calls, once. The name."""
        names, claim = HELPERS[op]
        name = choice.of(op, names)
        if op in helpers:
            return name
        part = pair.part(f"helper {op}")
        group = Group.of("group", choice, module) if passed else Group.accessors(part)
        if not passed and part.one_in("local group", 3):
            group = Group.of("group", choice, module)
        local_group = not passed and group.expression == "group"
        options = texts(MEGATRON, op)
        tag = part.of("text", options)
        pair.spelling.append(f"{name}: {tag}")
        bypass = op not in ("scale_by_group_size", "divide_by_group_size", "keep_rank0_zero_rest") or part.one_in("bypass", 3)
        device = part.of("device", ["torch.cuda.current_device()", f"{x}.device"])
        bypass = bypass and not part.one_in("no bypass", 5) and "RET @" not in options[tag]
        lines = statements(op, options[tag], part, x, group, module, device=device, bypass=bypass)
        if local_group and any(re.search(r"\bgroup\b", line) for line in lines):
            lines.insert(0, "group = get_tensor_model_parallel_group()")
        body = []
        for line in lines:
            called = re.search(r"@(\w+)\(", line)
            if called:
                inner = helper(called[1])
                start = called.start()
                depth, end = 0, called.end() - 1
                while True:
                    depth += {"(": 1, ")": -1}.get(line[end], 0)
                    if depth == 0:
                        break
                    end += 1
                argument = line[called.end() : end]
                line = f"{line[:start]}{inner}({argument}{', group' if passed else ''}){line[end + 1 :]}"
            body.append(line)
        doc = [f'"""{claim}"""'] if part.one_in("doc", 2) else []
        check = ['assert group is not None, "group should not be None"'] if passed and part.one_in("assert", 4) else []
        helpers[op] = [f"def {name}({x}{', group' if passed else ''}):", *indented([*doc, *check, *returning(body)])]
        return name

    def call(op, value, group, place):
        if op == "identity":
            return statements(op, pair.text(MEGATRON, op, place), pair.part(place), value, Group("", "", "", ""), module)[0][4:]
        return f"{helper(op)}({value}{', ' + group if passed else ''})"

    forward, backward = call(pair.forward, x, "group", "forward"), call(pair.backward, "grad_output", "ctx.group", "backward")
    group = ", group" if passed else ""
    methods = []
    if choice.one_in("symbolic", 4):
        methods.append(method(["@staticmethod"], f"symbolic(graph, {x}{group})", [f"return {forward}"]))
    keep = ["ctx.group = group"] if passed and (pair.backward != "identity" or choice.one_in("keep", 2)) else []
    methods.append(method(["@staticmethod"], f"forward(ctx, {x}{group})", [*keep, f"return {forward}"]))
    wrap = gradients(2 if passed else 1, 0, choice)
    methods.append(method(["@staticmethod"], "backward(ctx, grad_output)", [f"return {wrap(backward)}"]))
    cls = [f"class {pair.name}(torch.autograd.Function):", *"\n\n".join("\n".join(m) for m in methods).split("\n")]
    if mode == "argument":
        wrapper = pair.function(pair.wrapper, f"{x}, group", f"{x}, group")
    elif mode == "accessor in helpers":
        wrapper = pair.function(pair.wrapper, x, x)
    elif mode == "if none":
        wrapper = pair.function(pair.wrapper, f"{x}, group=None", f"{x}, group")
        wrapper.insert(1, "    group = get_tensor_model_parallel_group_if_none(group)")
    else:
        wrapper = pair.function(pair.wrapper, x, f"{x}, get_tensor_model_parallel_group()")
    pair.spelling.append(mode)
    return file(["group group = tp"] if passed else [], [*helpers.values(), cls, wrapper], choice)


def inline(pair, idiom_texts, place, op, x, group, wrap, functional="funcol", without=(), **how):
    """The statements of an operation in the body of a method."""
    text = pair.text(idiom_texts, op, place, without)
    module = pair.choice.of("module", ["dist", "dist", "torch.distributed"])
    return returning(statements(op, text, pair.part(place), x, group, module, functional, **how), wrap)


def uses(lines, word):
    return any(re.search(rf"(?<![\w.]){re.escape(word)}\b", line) for line in lines)


def functional(pair):
    """torch.distributed._functional_collectives; the group is stored on ctx."""
    choice = pair.choice
    library = choice.of("library", ["funcol", "fc", "ft_c", ""])
    mode = choice.of("group", ["argument", "mesh group", "mesh in wrapper", "named"])
    name = {"named": choice.of("name", ["process_group", "tp_group", "pg"])}.get(mode, "group")
    parameter = "mesh" if mode == "mesh group" else name
    x, grad = choice.of("x", ["x", "input", "tensor"]), choice.of("grad", ["grad_output", "grad", "dy"])
    group_first = choice.one_in("group first", 6)
    stored = choice.one_in("stored", 3)
    part = pair.part("names")
    module = choice.of("module", ["dist", "dist", "torch.distributed"])
    group = Group.of(name, part, module)
    back = Group.of(f"ctx.{name}", part, module)
    body = inline(pair, FUNCTIONAL, "forward", pair.forward, x, group, lambda e: e, library)
    keep = [f"ctx.{name} = {name}"]
    if stored:
        size, rank = back.size, back.rank
        back.size, back.rank, back.local = "ctx.world_size", "ctx.rank", False
    wrap = gradients(2, 1 if group_first else 0, choice)
    grads = inline(pair, FUNCTIONAL, "backward", pair.backward, grad, back, wrap, library)
    if stored:
        keep += [f"{a} = {e.replace('ctx.' + name, name)}" for a, e in (("ctx.world_size", size), ("ctx.rank", rank)) if any(a in line for line in grads)]
        if not any(f"ctx.{name}" in line for line in grads):
            keep = keep[1:]
    elif pair.backward == "identity":
        keep = []
    elif choice.one_in("backward local", 3) and sum(line.count(f"ctx.{name}") for line in grads) > 1:
        grads = [f"{name} = ctx.{name}", *(line.replace(f"ctx.{name}", name) for line in grads)]
    opening = []
    if mode == "mesh group":
        opening = [f'{name} = {choice.of("get", ["mesh.get_group(%s)", "mesh[%s].get_group()"]) % chr(34).join(["", "tp", ""])}']
        if not uses(keep + body, name):
            opening = []
    signature = f"ctx, {parameter}, {x}" if group_first else f"ctx, {x}, {parameter}"
    cls = [f"class {pair.name}({pair.base()}):"]
    cls += method(["@staticmethod"], f"forward({signature})", [*opening, *keep, *body])
    cls += ["", *method(["@staticmethod"], f"backward(ctx, {grad})", grads)]
    order = (lambda a, b: f"{b}, {a}") if group_first else (lambda a, b: f"{a}, {b}")
    if mode == "mesh in wrapper":
        wrapper = pair.function(pair.wrapper, f"{x}, mesh", order(x, choice.of("get", ['mesh.get_group("tp")', 'mesh["tp"].get_group()'])))
    else:
        wrapper = pair.function(pair.wrapper, f"{x}, {parameter}", order(x, parameter))
    pair.spelling.append(mode)
    return file([] if mode == "mesh group" else [f"group {name} = tp"], [cls, wrapper], choice)


def buffers_and_lists(pair):
    """Lists of pieces, output buffers, explicit slices, async handles; helpers in half of the files."""
    choice = pair.choice
    helpers = choice.one_in("helpers", 2)
    mode = choice.of("group", ["argument", "accessor", "parallel_state", "mpu", "named"])
    prefix = {"accessor": "", "parallel_state": "parallel_state.", "mpu": "mpu."}.get(mode)
    name = {"named": choice.of("name", ["process_group", "tp_group", "pg"])}.get(mode, "group")
    x, grad = choice.of("x", ["x", "input_", "tensor"]), choice.of("grad", ["grad_output", "grad", "g"])
    module = choice.of("module", ["dist", "dist", "torch.distributed"])
    group_first = prefix is None and choice.one_in("group first", 6)
    part = pair.part("names")
    blocks, bodies = [], {}
    names = {"forward": "_forward_op", "backward": "_backward_op"}
    plain = choice.of("plain", [HELPERS, None])
    for place, op, value in (("forward", pair.forward, x), ("backward", pair.backward, grad)):
        held = name if place == "forward" or prefix is not None else f"ctx.{name}"
        if helpers and op != "identity":
            called = choice.of(op, HELPERS[op][0]) if plain else names[place]
            group = Group.of(name, part, module) if prefix is None else Group.accessors(part, prefix)
            body = inline(pair, BUFFERS, place, op, "x", group, lambda e: e, bypass=choice.one_in(f"bypass {place}", 3))
            block = [f"def {called}(x{', ' + name if prefix is None else ''}):", *indented(body)]
            if not (plain and block[0] in [b[0] for b in blocks]):
                blocks.append(block)
            bodies[place] = [f"RET {called}({value}{', ' + held if prefix is None else ''})"]
            continue
        if prefix is None:
            group = Group.of(held, part, module)
        elif part.one_in("local group", 2):
            group = Group.of(name, part, module)
        else:
            group = Group.accessors(part, prefix)
        text = pair.text(BUFFERS, op, place)
        lines = statements(op, text, pair.part(place), value, group, module)
        if prefix is not None and group.expression == name and uses(lines, name):
            lines.insert(0, f"{name} = {prefix}get_tensor_model_parallel_group()")
        bodies[place] = lines
    arguments = 1 if prefix is not None else 2
    keep = [f"ctx.{name} = {name}"] if prefix is None and any(f"ctx.{name}" in line for line in bodies["backward"]) else []
    if not keep and choice.one_in("save", 3):
        keep = [f"ctx.shape = {x}.shape"]
    signature = ["ctx", x] + ([name] if prefix is None else [])
    if group_first:
        signature = ["ctx", name, x]
    wrap = gradients(arguments, 1 if group_first else 0, choice)
    cls = [f"class {pair.name}({pair.base()}):"]
    cls += method(["@staticmethod"], f"forward({', '.join(signature)})", [*keep, *returning(bodies["forward"])])
    cls += ["", *method(["@staticmethod"], f"backward(ctx, {grad})", returning(bodies["backward"], wrap))]
    wrapper = pair.function(pair.wrapper, ", ".join([x] + ([name] if prefix is None else [])), ", ".join(signature[1:]))
    pair.spelling.append(mode + (", helpers" if helpers else ""))
    return file([f"group {name} = tp"] if prefix is None else [], [*blocks, cls, wrapper], choice)


FLAGS = ["tensor_parallel_output_grad", "sequence_parallel", "reduce_grad"]


def mixed(pair):
    """setup_context, helpers on another class, the default group, dims and flags on ctx, once_differentiable, keywords."""
    choice = pair.choice
    mode = choice.of("group", ["argument", "default group", "group is None", "mesh", "communicator", "static helpers"])
    world = mode in ("default group", "group is None")
    setup = choice.one_in("setup_context", 3)
    x, grad = choice.of("x", ["x", "input_", "tensor"]), choice.of("grad", ["grad_output", "grad", "grads"])
    part = pair.part("names")
    module = choice.of("module", ["dist", "dist", "torch.distributed"])
    # A dim that both operations agree on, or only one has, may be an argument.
    dims = [DIMS[op] for op in (pair.forward, pair.backward) if op in DIMS]
    as_argument = dims and len(set(dims)) == 1 and isinstance(dims[0], int) and choice.one_in("dim argument", 2)
    dim_value = {0: "0", 1: choice.of("dim value", ["-1", "1"])}[dims[0]] if as_argument else None
    dim_stored = not as_argument and isinstance(DIMS.get(pair.backward), int) and choice.one_in("dim stored", 3)
    flag = choice.of("flag", FLAGS) if choice.one_in("has flag", 6) else None

    def group_at(place):
        if mode == "default group":
            return Group("", f"{module}.get_world_size()", f"{module}.get_rank()", "src=0")
        if mode == "group is None":
            held = "group" if place == "forward" else "ctx.group"
            return Group(held, f"{module}.get_world_size({held})", f"{module}.get_rank({held})", "src=0")
        if mode == "communicator":
            return Group("self.group", "self.world_size", "self.rank", "group_src=0", local=False)
        if mode == "static helpers":
            return Group.of("group", part, module)
        return Group.of("group" if place == "forward" else "ctx.group", part, module)

    blocks, helper_lines = [], {}
    without = ("$F",) if world else ()
    in_class = mode in ("communicator", "static helpers")

    def body(place, op, value, dim, wrap):
        how = {"dim": dim} if dim and op in DIMS and isinstance(DIMS[op], int) else {}
        if not in_class or op == "identity":
            return inline(pair, MIXED, place, op, value, group_at(place.split()[0]), wrap, without=without + (("$I",) if how else ()), **how)
        named = choice.of(op, HELPERS[op][0]).lstrip("_")
        parameter = ", dim" if how else ""
        key = (named, bool(how))
        if key not in helper_lines:
            named = named if not any(n == named for n, _ in helper_lines) else f"{named}_at"
            lines = inline(pair, MIXED, place, op, "x", group_at(place), lambda e: e, without=without + (("$I",) if how else ()), **({"dim": "dim"} if how else {}))
            if mode == "communicator":
                helper_lines[key] = named, method([], f"{named}(self, x{parameter})", lines)
            else:
                helper_lines[key] = named, method(["@staticmethod"], f"{named}(x, group{parameter})", lines)
        named = helper_lines[key][0]
        at = f", {how['dim']}" if how else ""
        if mode == "communicator":
            owner = "comm" if place == "forward" else "ctx.comm"
            return [f"return {wrap(f'{owner}.{named}({value}{at})')}"]
        held = "group" if place == "forward" else "ctx.group"
        return [f"return {wrap(f'_Comm.{named}({value}, {held}{at})')}"]

    arguments = [x]
    if mode == "communicator":
        arguments.append("comm")
    elif mode == "mesh":
        arguments.append("mesh")
    elif mode != "default group":
        arguments.append("group")
    defaults = {}
    if mode == "group is None":
        defaults["group"] = "None"
    if as_argument:
        arguments.append("dim")
        defaults["dim"] = dim_value
    if flag:
        arguments.append(flag)
        defaults[flag] = choice.of("flag value", ["True", "False"])
    first = mode in ("argument", "static helpers", "communicator") and choice.one_in("group first", 5)
    if first:
        arguments[0], arguments[1] = arguments[1], arguments[0]
    wrap = gradients(len(arguments), arguments.index(x), choice)
    forward = body("forward", pair.forward, x, "dim" if as_argument else None, lambda e: e)
    stored_dim = "ctx.dim" if as_argument or dim_stored else None
    backward = body("backward", pair.backward, grad, stored_dim, wrap)
    if flag:
        table = {(r["forward"], r["backward"]): r["signatures"] for r in pair.table}
        others = [op for op in ("identity", "all_reduce", "scale_by_group_size", "broadcast_from_rank0", "divide_by_group_size") if op != pair.backward]
        if pair.backward in GATHERS | SPLITS | SCATTERS:  # of the same shape where there is one
            family = {**SPLITS, **SCATTERS} if pair.backward not in GATHERS else {}
            others = [op for op in family if op != pair.backward and family[op] == DIMS[pair.backward]] or others
        other = choice.of("other backward", others)
        otherwise = body("backward otherwise", other, grad, None, wrap)
        value = defaults[flag] == "True"
        yes, no = (backward, otherwise) if value else (otherwise, backward)
        backward = [f"if ctx.{flag}:", *indented(yes), *no] if choice.one_in("no else", 2) else [f"if ctx.{flag}:", *indented(yes), "else:", *indented(no)]
        pair.extra = {"flags": {flag: value}, "otherwise": {"backward": other, "signatures": table[pair.forward, other]}}
        if other in DIMS:
            pair.extra["otherwise"]["dims"] = DIMS[other]
        pair.spelling.append("flag")
    keep = []
    if mode == "communicator" and any("ctx.comm" in line for line in backward):
        keep.append("ctx.comm = comm")
    if any("ctx.group" in line for line in backward):
        keep.append("ctx.group = group")
    if any("ctx.dim" in line for line in backward):
        keep.append("ctx.dim = dim" if as_argument else f"ctx.dim = {spelled_dim(pair.backward, Choice('dim', choice.place), x)[0]}")
    if flag:
        keep.append(f"ctx.{flag} = {flag}")
    if choice.one_in("needs_input_grad", 8):
        nothing = ", ".join(["None"] * len(arguments))
        at = arguments.index(x)
        backward = [f"if not ctx.needs_input_grad[{at}]:", f"    return {nothing}", *backward]
    opening = ['group = mesh.get_group("tp")'] if mode == "mesh" else []
    if choice.one_in("star", 6):
        star, backward = f"*{grad}s", [f"{grad} = {grad}s[0]", *backward]
    else:
        star = grad
    once = choice.one_in("once", 3)
    signature = ", ".join(f"{a}={defaults[a]}" if a in defaults else a for a in arguments)
    cls = [f"class {pair.name}({pair.base()}):"]
    decorators = ["@staticmethod", "@once_differentiable"] if once else ["@staticmethod"]
    if setup:
        used = [line for line in opening if uses(forward, "group")]
        cls += method(["@staticmethod"], f"forward({signature})", [*used, *forward])
        if keep:
            text = "\n".join(keep)
            if len(arguments) == 1:
                unpack = [f"({x},) = inputs"] if re.search(rf"\b{x}\b", text) else []
            else:
                needed = [a if re.search(rf"(?<![\w.]){a}\b", text + ("\nmesh" if mode == "mesh" else "")) else "_" for a in arguments]
                unpack = [f"{', '.join(needed)} = inputs"] if set(needed) != {"_"} else []
            again = [line for line in opening if "ctx.group = group" in keep]
            cls += ["", *method(["@staticmethod"], "setup_context(ctx, inputs, output)", [*unpack, *again, *keep])]
        else:
            cls += ["", *method(["@staticmethod"], "setup_context(ctx, inputs, output)", ["pass"])]
        pair.spelling.append("setup_context")
    else:
        used = [line for line in opening if uses(forward + keep, "group")]
        cls += method(["@staticmethod"], f"forward(ctx, {signature})", [*used, *keep, *forward])
    cls += ["", *method(decorators, f"backward(ctx, {star})", backward)]
    if in_class and (mode == "communicator" or helper_lines):
        methods = [lines for _, lines in helper_lines.values()]
        if mode == "communicator":
            make = ["self.group = group", f"self.world_size = {module}.get_world_size(group)", f"self.rank = {module}.get_rank(group)"]
            methods.insert(0, method([], "__init__(self, group)", make))
        blocks.append(["class _Comm:", *"\n\n".join("\n".join(m) for m in methods).split("\n")])
    given = {x: x, "group": "group", "mesh": "mesh", "comm": "comm", **defaults}
    if mode == "group is None":
        parameters = [x]
        given["group"] = "None"
    elif mode == "communicator":
        parameters, given["comm"] = [x, "group"], "_Comm(group)"
    else:
        parameters = [a for a in arguments if a not in defaults]
        parameters.sort(key=lambda a: a != x)
    call = [given[a] for a in arguments]
    if mode == "group is None" and len(arguments) == 2 and choice.one_in("left out", 2):
        call.pop()
    wrapper = pair.function(pair.wrapper, ", ".join(parameters), ", ".join(call))
    pair.spelling.append(mode)
    directives = ["group group = tp"] if "group" in parameters else []
    return file(directives, [*blocks, cls, wrapper], choice)


IDIOMS = {"megatron": megatron, "functional": functional, "buffers_and_lists": buffers_and_lists, "mixed": mixed}


def rows(table):
    for number, row in enumerate(table):
        for idiom, write in IDIOMS.items():
            pair = Pair(number, row, table, idiom)
            source = write(pair)
            ast.parse(source)
            yield pair.row(source)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=pathlib.Path, default=ORACLE / "autograd_pairs.json")
    parser.add_argument("--out", type=pathlib.Path, default=ORACLE / "autograd.jsonl")
    parser.add_argument("--show", metavar="ID", help="print the source of one line and write nothing")
    options = parser.parse_args()
    lines = list(rows(json.loads(options.table.read_text())))
    if options.show:
        print(next(line["source"] for line in lines if line["id"] == options.show), end="")
        return
    text = "".join(json.dumps(line) + "\n" for line in lines)
    options.out.write_text(text)
    print(f"{options.out}: {len(lines)} lines, {len(text)} bytes")


if __name__ == "__main__":
    main()
