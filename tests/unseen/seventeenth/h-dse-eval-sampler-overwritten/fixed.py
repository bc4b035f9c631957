# Source: microsoft/DeepSpeedExamples commit 35675f47 (PR #804),
# DeepSpeed-Chat/training/step2_reward_model_finetuning/main.py
# The DistributedSampler of the evaluation set is replaced by a SequentialSampler before it is used:
# every rank evaluates the same first batches, and the mean over the ranks is of world_size copies.
# Repair: remove the second assignment.
import torch
from deepspeed import comm as dist
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from dschat.utils.data.data_utils import DataCollatorReward, create_prompt_dataset
from dschat.utils.utils import get_all_reduce_mean, to_device


def build_dataloaders(args, tokenizer):
    train_phase = 2
    train_dataset, eval_dataset = create_prompt_dataset(
        args.local_rank, args.data_path, args.data_split,
        args.data_output_path, train_phase, args.seed, tokenizer,
        args.max_seq_len)

    # DataLoaders creation:
    data_collator = DataCollatorReward()
    if args.local_rank == -1:
        train_sampler = RandomSampler(train_dataset)
        eval_sampler = SequentialSampler(eval_dataset)
    else:
        train_sampler = DistributedSampler(train_dataset)
        eval_sampler = DistributedSampler(eval_dataset)
    train_dataloader = DataLoader(train_dataset,
                                  collate_fn=data_collator,
                                  sampler=train_sampler,
                                  batch_size=args.per_device_train_batch_size)
    eval_dataloader = DataLoader(eval_dataset,
                                 collate_fn=data_collator,
                                 sampler=eval_sampler,
                                 batch_size=args.per_device_eval_batch_size)
    return train_dataloader, eval_dataloader


def evaluation_reward(model, dataloader, eval_iters, device):
    model.eval()
    correct_predictions = 0
    total_predictions = 0
    chosen_scores = 0.
    for _step, _batch in enumerate(dataloader):
        _batch = to_device(_batch, device)
        with torch.no_grad():
            _outputs = model(**_batch)
        chosen = _outputs["chosen_mean_scores"]
        rejected = _outputs["rejected_mean_scores"]
        correct_predictions += (chosen > rejected).sum()
        total_predictions += chosen.shape[0]
        chosen_scores += chosen.mean().float()
        if (_step + 1) == eval_iters:
            break
    _acc = get_all_reduce_mean(correct_predictions / total_predictions).item()
    chosen_scores = get_all_reduce_mean(chosen_scores / (_step + 1)).item()
    if dist.get_rank() == 0:
        print(f"chosen_last_scores: {chosen_scores}, acc: {_acc}")
    return chosen_scores, _acc
