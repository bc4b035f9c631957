"""New token embeddings under ZeRO-3 (written from memory of DeepSpeed fine-tuning scripts, e.g. axolotl, TRL)."""
import deepspeed
import torch
import torch.distributed as dist


class ToyCausalLM(torch.nn.Module):
    def __init__(self, vocab_size, hidden):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(vocab_size, hidden)
        self.lm_head = torch.nn.Linear(hidden, vocab_size, bias=False)

    def forward(self, input_ids):
        return self.lm_head(self.embed_tokens(input_ids))


def init_added_tokens(model, num_added):
    """Give the last num_added rows the mean of the old ones."""
    weights = [model.embed_tokens.weight, model.lm_head.weight]
    with deepspeed.zero.GatheredParameters(weights, modifier_rank=None):  # BUG: the change is thrown away
        if dist.get_rank() == 0:
            for w in weights:
                mean = w.data[:-num_added].mean(dim=0, keepdim=True)
                w.data[-num_added:] = mean


def build_engine(ds_config, vocab_size, num_added, hidden, load_fn):
    with deepspeed.zero.Init(config_dict_or_path=ds_config):
        model = ToyCausalLM(vocab_size + num_added, hidden)
    load_fn(model)  # fills the rows of the old vocabulary
    init_added_tokens(model, num_added)
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=ds_config
    )
    return engine, optimizer
