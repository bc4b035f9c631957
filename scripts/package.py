#!/usr/bin/env python3
"""Writes a package in the style of Megatron-LM, about 20,000 lines, always the same: for measurements that have to mean the same in a year.

usage: package.py FOLDER [FAMILIES]

FOLDER/megacore has process groups and autograd functions that all share, and FAMILIES (38) sub-packages: layers, attention, experts, a
block, a model, a data-parallel wrapper, a training step, and what every such package has most of: configuration, data, tokenizers,
checkpoints, which have nothing to do with communication.
"""

import pathlib
import sys

FAMILIES = 38

STATE = '''
"""Process groups of the run."""

import torch

_TENSOR_GROUP = None
_DATA_GROUP = None
_EXPERT_GROUP = None
_CONTEXT_GROUP = None


def initialize_model_parallel(tensor_size=1, context_size=1, expert_size=1):
    global _TENSOR_GROUP, _DATA_GROUP, _EXPERT_GROUP, _CONTEXT_GROUP
    world_size = torch.distributed.get_world_size()
    rank = torch.distributed.get_rank()
    if world_size % (tensor_size * context_size) != 0:
        raise RuntimeError("the world does not divide")
    for start in range(0, world_size, tensor_size):
        ranks = list(range(start, start + tensor_size))
        group = torch.distributed.new_group(ranks)
        if rank in ranks:
            _TENSOR_GROUP = group
    for start in range(tensor_size):
        ranks = list(range(start, world_size, tensor_size))
        group = torch.distributed.new_group(ranks)
        if rank in ranks:
            _DATA_GROUP = group


def get_tensor_model_parallel_group():
    assert _TENSOR_GROUP is not None, "the groups are not made"
    return _TENSOR_GROUP


def get_data_parallel_group():
    assert _DATA_GROUP is not None, "the groups are not made"
    return _DATA_GROUP


def get_expert_model_parallel_group():
    return _EXPERT_GROUP


def get_context_parallel_group():
    return _CONTEXT_GROUP


def get_tensor_model_parallel_world_size():
    return torch.distributed.get_world_size(group=get_tensor_model_parallel_group())


def get_tensor_model_parallel_rank():
    return torch.distributed.get_rank(group=get_tensor_model_parallel_group())
'''

MAPPINGS = '''
"""Autograd functions of tensor and sequence parallelism."""

import torch

from megacore.state import get_tensor_model_parallel_group, get_tensor_model_parallel_world_size


def _reduce(input_, group):
    if group.size() == 1:
        return input_
    input_ = input_.contiguous()
    torch.distributed.all_reduce(input_, group=group)
    return input_


def _gather_first(input_, group):
    size = list(input_.size())
    size[0] = size[0] * group.size()
    output = torch.empty(size, dtype=input_.dtype, device=torch.cuda.current_device())
    torch.distributed.all_gather_into_tensor(output, input_.contiguous(), group=group)
    return output


def _scatter_first(input_, group):
    size = list(input_.size())
    assert size[0] % group.size() == 0
    size[0] = size[0] // group.size()
    output = torch.empty(size, dtype=input_.dtype, device=torch.cuda.current_device())
    torch.distributed.reduce_scatter_tensor(output, input_.contiguous(), group=group)
    return output


def _split_first(input_, group):
    size = input_.size(0) // group.size()
    start = group.rank() * size
    return input_[start : start + size].contiguous()


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce(grad_output, ctx.group), None


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        return _reduce(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GatherFromSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return _gather_first(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _scatter_first(grad_output, ctx.group), None


class ReduceScatterToSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return _scatter_first(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather_first(grad_output, ctx.group), None


class ScatterToSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return _split_first(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather_first(grad_output, ctx.group), None


def copy_to_region(input_):
    return CopyToRegion.apply(input_, get_tensor_model_parallel_group())


def reduce_from_region(input_):
    return ReduceFromRegion.apply(input_, get_tensor_model_parallel_group())


def gather_from_sequence(input_):
    return GatherFromSequence.apply(input_, get_tensor_model_parallel_group())


def reduce_scatter_to_sequence(input_):
    return ReduceScatterToSequence.apply(input_, get_tensor_model_parallel_group())


def scatter_to_sequence(input_):
    return ScatterToSequence.apply(input_, get_tensor_model_parallel_group())
'''

LAYERS = '''
"""Linear layers of family {n}, split over the tensor-parallel group."""

import torch
import torch.nn.functional as F

from megacore.mappings import (
    copy_to_region,
    gather_from_sequence,
    reduce_from_region,
    reduce_scatter_to_sequence,
)
from megacore.state import get_tensor_model_parallel_group, get_tensor_model_parallel_world_size


class ColumnParallelLinear{n}(torch.nn.Module):
    def __init__(self, input_size, output_size, config, bias=True, gather_output=False):
        super().__init__()
        world_size = get_tensor_model_parallel_world_size()
        self.output_size_per_partition = output_size // world_size
        self.sequence_parallel = config.sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(self.output_size_per_partition, input_size))
        setattr(self.weight, "tensor_model_parallel", True)
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(self.output_size_per_partition))
        else:
            self.register_parameter("bias", None)
        self.init_method = config.init_method
        self.reset_parameters()

    def reset_parameters(self):
        with torch.no_grad():
            self.init_method(self.weight)

    def forward(self, input_):
        if self.sequence_parallel:
            total_input = gather_from_sequence(input_)
        else:
            total_input = copy_to_region(input_)
        output = F.linear(total_input, self.weight, self.bias)
        return output


class RowParallelLinear{n}(torch.nn.Module):
    def __init__(self, input_size, output_size, config, bias=True):
        super().__init__()
        world_size = get_tensor_model_parallel_world_size()
        self.input_size_per_partition = input_size // world_size
        self.sequence_parallel = config.sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(output_size, self.input_size_per_partition))
        setattr(self.weight, "tensor_model_parallel", True)
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(output_size))
            setattr(self.bias, "sequence_parallel", self.sequence_parallel)
        else:
            self.register_parameter("bias", None)

    def forward(self, input_):
        output_parallel = F.linear(input_, self.weight)
        if self.sequence_parallel:
            output = reduce_scatter_to_sequence(output_parallel)
        else:
            output = reduce_from_region(output_parallel)
        if self.bias is not None:
            output = output + self.bias
        return output


class VocabParallelEmbedding{n}(torch.nn.Module):
    def __init__(self, vocab_size, hidden_size, config):
        super().__init__()
        group = get_tensor_model_parallel_group()
        per_rank = vocab_size // group.size()
        self.start = group.rank() * per_rank
        self.end = self.start + per_rank
        self.sequence_parallel = config.sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(per_rank, hidden_size))

    def forward(self, tokens):
        mask = (tokens < self.start) | (tokens >= self.end)
        masked = tokens.clone() - self.start
        masked[mask] = 0
        output_parallel = F.embedding(masked, self.weight)
        output_parallel[mask, :] = 0.0
        if self.sequence_parallel:
            return reduce_scatter_to_sequence(output_parallel.transpose(0, 1).contiguous())
        return reduce_from_region(output_parallel)


class RMSNorm{n}(torch.nn.Module):
    def __init__(self, size, config, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(variance + self.eps)).type_as(x) * self.weight
'''

BLOCK = '''
"""A transformer block of family {n}."""

import math

import torch
import torch.nn.functional as F

from megacore.family{n}.layers import ColumnParallelLinear{n}, RMSNorm{n}, RowParallelLinear{n}, VocabParallelEmbedding{n}
from megacore.state import get_expert_model_parallel_group, get_tensor_model_parallel_group


class Attention{n}(torch.nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.config = config
        self.layer_number = layer_number
        self.heads = config.num_attention_heads // get_tensor_model_parallel_group().size()
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.query_key_value = ColumnParallelLinear{n}(config.hidden_size, 3 * config.hidden_size, config, bias=config.add_qkv_bias)
        self.dense = RowParallelLinear{n}(config.hidden_size, config.hidden_size, config, bias=config.add_bias)
        self.dropout = torch.nn.Dropout(config.attention_dropout)

    def core(self, query, key, value, mask=None):
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask, -10000.0)
        probs = self.dropout(F.softmax(scores, dim=-1))
        return torch.matmul(probs, value)

    def forward(self, hidden_states, mask=None, rotary=None):
        mixed = self.query_key_value(hidden_states)
        length, batch = mixed.size(0), mixed.size(1)
        mixed = mixed.view(length, batch, self.heads, 3 * self.head_dim)
        query, key, value = torch.split(mixed, self.head_dim, dim=3)
        if rotary is not None:
            query = query * rotary.cos() + self.rotate(query) * rotary.sin()
            key = key * rotary.cos() + self.rotate(key) * rotary.sin()
        query, key, value = [t.permute(1, 2, 0, 3) for t in (query, key, value)]
        context = self.core(query, key, value, mask)
        context = context.permute(2, 0, 1, 3).contiguous()
        context = context.view(length, batch, self.heads * self.head_dim)
        return self.dense(context)

    def rotate(self, x):
        first, second = torch.chunk(x, 2, dim=-1)
        return torch.cat((-second, first), dim=-1)


class MLP{n}(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gated = config.gated_linear_unit
        width = config.ffn_hidden_size * (2 if self.gated else 1)
        self.linear_fc1 = ColumnParallelLinear{n}(config.hidden_size, width, config, bias=config.add_bias)
        self.linear_fc2 = RowParallelLinear{n}(config.ffn_hidden_size, config.hidden_size, config, bias=config.add_bias)

    def forward(self, hidden_states):
        intermediate = self.linear_fc1(hidden_states)
        if self.gated:
            gate, value = torch.chunk(intermediate, 2, dim=-1)
            intermediate = F.silu(gate) * value
        else:
            intermediate = F.gelu(intermediate)
        return self.linear_fc2(intermediate)


class Router{n}(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.topk = config.moe_router_topk
        self.weight = torch.nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        self.coefficient = config.moe_aux_loss_coeff

    def forward(self, hidden_states):
        logits = F.linear(hidden_states.float(), self.weight.float())
        scores, indices = torch.topk(torch.softmax(logits, dim=-1), self.topk, dim=-1)
        load = torch.zeros(self.weight.size(0), device=logits.device)
        load.scatter_add_(0, indices.reshape(-1), torch.ones_like(indices.reshape(-1), dtype=load.dtype))
        return scores, indices, load


class Experts{n}(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.local_experts = torch.nn.ModuleList([MLP{n}(config) for _ in range(config.num_local_experts)])
        self.router = Router{n}(config)
        self.group = get_expert_model_parallel_group()

    def dispatch(self, tokens, splits):
        output = torch.empty_like(tokens)
        torch.distributed.all_to_all_single(output, tokens, splits, splits, group=self.group)
        return output

    def forward(self, hidden_states):
        scores, indices, load = self.router(hidden_states)
        outputs = []
        for number, expert in enumerate(self.local_experts):
            chosen = (indices == number).any(dim=-1)
            outputs.append(expert(hidden_states) * chosen.unsqueeze(-1))
        return sum(outputs) * scores.sum(dim=-1, keepdim=True)


class Layer{n}(torch.nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.input_norm = RMSNorm{n}(config.hidden_size, config)
        self.attention = Attention{n}(config, layer_number)
        self.post_norm = RMSNorm{n}(config.hidden_size, config)
        self.mlp = Experts{n}(config) if config.num_experts else MLP{n}(config)
        self.hidden_dropout = config.hidden_dropout

    def forward(self, hidden_states, mask=None, rotary=None):
        attended = self.attention(self.input_norm(hidden_states), mask, rotary)
        hidden_states = hidden_states + F.dropout(attended, p=self.hidden_dropout, training=self.training)
        output = self.mlp(self.post_norm(hidden_states))
        return hidden_states + F.dropout(output, p=self.hidden_dropout, training=self.training)


class Model{n}(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = VocabParallelEmbedding{n}(config.vocab_size, config.hidden_size, config)
        self.layers = torch.nn.ModuleList([Layer{n}(config, i) for i in range(config.num_layers)])
        self.final_norm = RMSNorm{n}(config.hidden_size, config)
        self.output_layer = ColumnParallelLinear{n}(config.hidden_size, config.vocab_size, config, bias=False)

    def forward(self, tokens, labels=None, mask=None):
        hidden_states = self.embedding(tokens)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask)
        logits = self.output_layer(self.final_norm(hidden_states))
        if labels is None:
            return logits
        return self.loss(logits, labels)

    def loss(self, logits, labels):
        group = get_tensor_model_parallel_group()
        largest = torch.max(logits, dim=-1)[0]
        torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)
        logits = logits - largest.unsqueeze(-1)
        exponents = torch.exp(logits)
        total = exponents.sum(dim=-1)
        torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=group)
        return torch.log(total).mean()
'''

TRAIN = '''
"""Gradients and steps of family {n}."""

import torch

from megacore.family{n}.block import Model{n}
from megacore.family{n}.settings import Settings{n}
from megacore.state import get_data_parallel_group, get_tensor_model_parallel_group


class Bucket{n}:
    def __init__(self, params, group, average):
        self.params = list(params)
        self.group = group
        self.average = average
        self.data = torch.zeros(sum(p.numel() for p in self.params))
        self.handle = None

    def start(self):
        if self.average:
            self.data.mul_(1.0 / self.group.size())
        self.handle = torch.distributed.all_reduce(self.data, group=self.group, async_op=True)

    def finish(self):
        if self.handle is not None:
            self.handle.wait()
            self.handle = None


class DistributedModel{n}(torch.nn.Module):
    def __init__(self, config, module):
        super().__init__()
        self.module = module
        self.config = config
        self.group = get_data_parallel_group()
        self.buckets = [Bucket{n}(module.parameters(), self.group, config.average_in_collective)]

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    def start_grad_sync(self):
        for bucket in self.buckets:
            bucket.start()

    def finish_grad_sync(self):
        for bucket in self.buckets:
            bucket.finish()


def allreduce_sequence_parallel_grads(model, config):
    if not config.sequence_parallel:
        return
    grads = []
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            grads.append(param.grad.data)
    if grads:
        coalesced = torch._utils._flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=get_tensor_model_parallel_group())
        for grad, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
            grad.copy_(synced)


def grad_norm(parameters, norm_type=2.0):
    total = 0.0
    for param in parameters:
        if param.grad is not None:
            total += torch.norm(param.grad.detach(), norm_type) ** norm_type
    total = torch.tensor([float(total)], device="cuda")
    torch.distributed.all_reduce(total, group=get_tensor_model_parallel_group())
    return total[0].item() ** (1.0 / norm_type)


def train_step(model, optimizer, batch, config):
    optimizer.zero_grad()
    loss = model(batch["tokens"], batch["labels"], batch.get("mask"))
    loss.backward()
    model.start_grad_sync()
    model.finish_grad_sync()
    allreduce_sequence_parallel_grads(model, config)
    norm = grad_norm(model.parameters())
    if config.clip_grad > 0.0 and norm > config.clip_grad:
        for param in model.parameters():
            param.grad.mul_(config.clip_grad / (norm + 1.0e-6))
    optimizer.step()
    reported = loss.detach().clone()
    torch.distributed.all_reduce(reported, group=get_data_parallel_group())
    return reported / get_data_parallel_group().size(), norm


def train(iterator, steps):
    config = Settings{n}()
    model = DistributedModel{n}(config, Model{n}(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for step in range(steps):
        loss, norm = train_step(model, optimizer, next(iterator), config)
        if step % config.log_interval == 0 and torch.distributed.get_rank() == 0:
            print(step, loss.item(), norm)
'''

SETTINGS = '''
"""Settings of family {n}."""

from dataclasses import dataclass, field
from typing import Callable, Optional

import torch


@dataclass
class Settings{n}:
    num_layers: int = {layers}
    hidden_size: int = {hidden}
    num_attention_heads: int = 16
    ffn_hidden_size: Optional[int] = None
    vocab_size: int = 32000
    num_experts: int = {experts}
    num_local_experts: int = 2
    moe_router_topk: int = 2
    moe_aux_loss_coeff: float = 0.01
    add_bias: bool = False
    add_qkv_bias: bool = False
    gated_linear_unit: bool = True
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    sequence_parallel: bool = {sequence}
    average_in_collective: bool = True
    clip_grad: float = 1.0
    lr: float = 3.0e-4
    log_interval: int = 10
    init_method: Optional[Callable] = None
    names: dict = field(default_factory=dict)

    def __post_init__(self):
        if self.ffn_hidden_size is None:
            self.ffn_hidden_size = 4 * self.hidden_size
        if self.hidden_size % self.num_attention_heads != 0:
            raise ValueError(f"{self.hidden_size} does not divide by {self.num_attention_heads}")
        if self.init_method is None:
            self.init_method = lambda tensor: torch.nn.init.normal_(tensor, std=0.02)
'''

PLAIN = '''
"""What family {n} does without communication: data, words, files."""

import json
import logging
import os
import re
from collections import defaultdict

logger = logging.getLogger(__name__)


class Vocabulary{n}:
    pattern = re.compile(r"[A-Za-z]+|[0-9]+|.")

    def __init__(self, path, special=("<pad>", "<bos>", "<eos>")):
        self.path = path
        self.words = list(special)
        self.numbers = {{word: number for number, word in enumerate(self.words)}}
        if os.path.exists(path):
            self.read()

    def read(self):
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                word = line.rstrip("\\n")
                if word and word not in self.numbers:
                    self.numbers[word] = len(self.words)
                    self.words.append(word)

    def encode(self, text, add_special=True):
        numbers = [self.numbers.get(word, 0) for word in self.pattern.findall(text)]
        if add_special:
            numbers = [self.numbers["<bos>"], *numbers, self.numbers["<eos>"]]
        return numbers

    def decode(self, numbers):
        return "".join(self.words[number] for number in numbers if number < len(self.words))


class Dataset{n}:
    def __init__(self, files, vocabulary, length, seed=1234):
        self.files = sorted(files)
        self.vocabulary = vocabulary
        self.length = length
        self.seed = seed
        self.index = self.build_index()

    def build_index(self):
        index = []
        for file in self.files:
            size = os.path.getsize(file)
            for start in range(0, max(1, size // (4 * self.length))):
                index.append((file, start * self.length))
        logger.info("%d samples in %d files", len(index), len(self.files))
        return index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, number):
        file, start = self.index[number % len(self.index)]
        with open(file, encoding="utf-8") as handle:
            handle.seek(start)
            text = handle.read(4 * self.length)
        numbers = self.vocabulary.encode(text)[: self.length + 1]
        while len(numbers) < self.length + 1:
            numbers.append(0)
        return {{"tokens": numbers[:-1], "labels": numbers[1:]}}


class Sampler{n}:
    def __init__(self, total, consumed, batch_size, rank, world_size, drop_last=True):
        assert total > 0, f"no sample to consume: {{total}}"
        assert rank < world_size
        self.total = total
        self.consumed = consumed
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last

    def __iter__(self):
        batch = []
        for number in range(self.consumed, self.total):
            batch.append(number)
            if len(batch) == self.batch_size * self.world_size:
                start = self.rank * self.batch_size
                yield batch[start : start + self.batch_size]
                batch = []
        if batch and not self.drop_last:
            yield batch[self.rank * self.batch_size :]


def arguments(parser):
    group = parser.add_argument_group(title="family {n}")
    group.add_argument("--layers", type=int, default=12, help="how many layers")
    group.add_argument("--hidden", type=int, default=1024, help="the width of a layer")
    group.add_argument("--heads", type=int, default=16, help="attention heads")
    group.add_argument("--sequence-parallel", action="store_true", help="split the sequence")
    group.add_argument("--save", type=str, default=None, help="where checkpoints are written")
    group.add_argument("--load", type=str, default=None, help="where checkpoints are read")
    group.add_argument("--save-interval", type=int, default=1000)
    group.add_argument("--eval-interval", type=int, default=1000)
    group.add_argument("--dtype", choices=["fp32", "fp16", "bf16"], default="bf16")
    return parser


def validate(args, defaults=None):
    for key, value in (defaults or {{}}).items():
        if getattr(args, key, None) is None:
            setattr(args, key, value)
    if args.hidden % args.heads != 0:
        raise ValueError("the width does not divide by the number of heads")
    if args.save is not None and args.save_interval <= 0:
        raise ValueError("checkpoints need an interval")
    return args


def merge(states):
    merged = defaultdict(list)
    for state in states:
        for name, value in state.items():
            merged[name].append(value)
    return {{name: values[0] if len(values) == 1 else values for name, values in merged.items()}}


def rename(state, table):
    renamed = {{}}
    for name, value in state.items():
        for old, new in table:
            if old in name:
                name = name.replace(old, new)
        renamed[name] = value
    missing = [new for _, new in table if not any(new in name for name in renamed)]
    if missing:
        logger.warning("nothing is called %s", ", ".join(missing))
    return renamed


def summary(results, path=None):
    lines = []
    for name in sorted(results):
        values = results[name]
        mean = sum(values) / max(1, len(values))
        lines.append(f"{{name:<24}} {{mean:10.4f}} {{min(values):10.4f}} {{max(values):10.4f}}")
    text = "\\n".join(lines)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2, sort_keys=True)
    return text
'''


def filled(text, number):
    values = {
        "{n}": str(number),
        "{layers}": str(12 + number % 5),
        "{hidden}": str(1024 * (1 + number % 4)),
        "{experts}": str(8 * (number % 3)),
        "{sequence}": str(number % 2 == 0),
    }
    for name, value in values.items():
        text = text.replace(name, value)
    # In `PLAIN` braces are doubled, as in a format string.
    return text.replace("{{", "{").replace("}}", "}").lstrip("\n")


def main():
    folder = pathlib.Path(sys.argv[1]) / "megacore"
    families = int(sys.argv[2]) if len(sys.argv) > 2 else FAMILIES
    files = {"__init__.py": "", "state.py": STATE, "mappings.py": MAPPINGS}
    for number in range(families):
        parts = {"__init__": "", "layers": LAYERS, "block": BLOCK, "train": TRAIN, "settings": SETTINGS, "plain": PLAIN}
        files.update({f"family{number}/{name}.py": filled(text, number) for name, text in parts.items()})
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))


main()
