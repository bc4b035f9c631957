# ms-swift, pull 10069: the labels mark where the samples among the embeddings begin; when the embeddings of all
# data-parallel ranks are gathered, the labels have to be gathered in the same order.
"""InfoNCE loss over the data-parallel group in the Megatron backend."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import mpu
from torch.distributed.nn.functional import all_gather


def _parse_multi_negative_sentences(sentences, labels):
    # labels [1, 0, 0, 1, 0, 0]: anchor, positive, 2 negatives; anchor, positive, 2 negatives
    starts = torch.nonzero(labels).flatten().tolist() + [len(labels)]
    return [sentences[starts[i] + i : starts[i + 1] + i + 1] for i in range(len(starts) - 1)]


class InfonceLoss:
    temperature = 0.1

    def __call__(self, sentences, labels):
        # the number of negatives is fixed: all ranks have the same number of rows
        dp_group = mpu.get_data_parallel_group()
        sentences = torch.cat(all_gather(sentences, group=dp_group))  # backward sums over ranks, DDP averages
        samples = _parse_multi_negative_sentences(sentences, labels)  # BUG: labels of this rank for rows of all
        queries = torch.stack([s[0] for s in samples])
        docs = torch.cat([s[1:] for s in samples])
        counts = torch.tensor([0] + [len(s) - 1 for s in samples[:-1]], device=docs.device)
        return F.cross_entropy(queries @ docs.t() / self.temperature, counts.cumsum(0))


def loss_func(infonce_loss, labels, output_tensor):
    loss = infonce_loss(F.normalize(output_tensor, dim=-1), labels)
    return loss, {"loss": loss.detach()}
