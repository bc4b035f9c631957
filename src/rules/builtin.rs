//! The rule files embedded in the binary. In: nothing. Out: (name, text) of each, and the book they make.
//! Never: reading from disk. Next: `load.rs`. `tests/tidy.rs` checks that no file of `rules/` is missing here.

use super::book::RuleBook;
use super::load::load;

/// Built-in rule files, in order: later ones override earlier ones.
pub const FILES: &[(&str, &str)] = &[
    ("rules/torch/cast.toml", include_str!("../../rules/torch/cast.toml")),
    ("rules/torch/compare.toml", include_str!("../../rules/torch/compare.toml")),
    ("rules/torch/dtensor.toml", include_str!("../../rules/torch/dtensor.toml")),
    ("rules/torch/einops.toml", include_str!("../../rules/torch/einops.toml")),
    ("rules/torch/factory.toml", include_str!("../../rules/torch/factory.toml")),
    ("rules/torch/functional.toml", include_str!("../../rules/torch/functional.toml")),
    ("rules/torch/index.toml", include_str!("../../rules/torch/index.toml")),
    ("rules/torch/inplace.toml", include_str!("../../rules/torch/inplace.toml")),
    ("rules/torch/linalg.toml", include_str!("../../rules/torch/linalg.toml")),
    ("rules/torch/loss.toml", include_str!("../../rules/torch/loss.toml")),
    ("rules/torch/matmul.toml", include_str!("../../rules/torch/matmul.toml")),
    ("rules/torch/metadata.toml", include_str!("../../rules/torch/metadata.toml")),
    ("rules/torch/nn.toml", include_str!("../../rules/torch/nn.toml")),
    ("rules/torch/pointwise.toml", include_str!("../../rules/torch/pointwise.toml")),
    ("rules/torch/reduction.toml", include_str!("../../rules/torch/reduction.toml")),
    ("rules/torch/view.toml", include_str!("../../rules/torch/view.toml")),
    ("rules/torch/wrappers.toml", include_str!("../../rules/torch/wrappers.toml")),
    ("rules/python.toml", include_str!("../../rules/python.toml")),
    ("rules/collectives/functional.toml", include_str!("../../rules/collectives/functional.toml")),
    ("rules/collectives/spmd_types.toml", include_str!("../../rules/collectives/spmd_types.toml")),
    ("rules/collectives/torch_distributed.toml", include_str!("../../rules/collectives/torch_distributed.toml")),
    ("rules/models/accelerate.toml", include_str!("../../rules/models/accelerate.toml")),
    ("rules/models/apex.toml", include_str!("../../rules/models/apex.toml")),
    ("rules/models/colossalai.toml", include_str!("../../rules/models/colossalai.toml")),
    ("rules/models/colossalai_layers.toml", include_str!("../../rules/models/colossalai_layers.toml")),
    ("rules/models/composer.toml", include_str!("../../rules/models/composer.toml")),
    ("rules/models/deepspeed.toml", include_str!("../../rules/models/deepspeed.toml")),
    ("rules/models/fairscale.toml", include_str!("../../rules/models/fairscale.toml")),
    ("rules/models/fairscale_layers.toml", include_str!("../../rules/models/fairscale_layers.toml")),
    ("rules/models/interevo.toml", include_str!("../../rules/models/interevo.toml")),
    ("rules/models/lightning_fabric.toml", include_str!("../../rules/models/lightning_fabric.toml")),
    ("rules/models/megatron.toml", include_str!("../../rules/models/megatron.toml")),
    ("rules/models/megatron_layers.toml", include_str!("../../rules/models/megatron_layers.toml")),
    ("rules/models/nanotron.toml", include_str!("../../rules/models/nanotron.toml")),
    ("rules/models/nanotron_layers.toml", include_str!("../../rules/models/nanotron_layers.toml")),
    ("rules/models/neox.toml", include_str!("../../rules/models/neox.toml")),
    ("rules/models/norms.toml", include_str!("../../rules/models/norms.toml")),
    ("rules/models/picotron.toml", include_str!("../../rules/models/picotron.toml")),
    ("rules/models/picotron_layers.toml", include_str!("../../rules/models/picotron_layers.toml")),
    ("rules/models/torch_xla.toml", include_str!("../../rules/models/torch_xla.toml")),
    ("rules/models/torchtitan.toml", include_str!("../../rules/models/torchtitan.toml")),
    ("rules/models/transformers.toml", include_str!("../../rules/models/transformers.toml")),
    ("rules/models/veomni.toml", include_str!("../../rules/models/veomni.toml")),
    ("rules/models/verl.toml", include_str!("../../rules/models/verl.toml")),
];

/// The built-in rules without the collectives of frameworks, whose bodies can then be derived.
///
/// # Panics
/// As [`builtin`].
pub fn without_mappings() -> RuleBook {
    let (book, problems) = super::load::load_but(FILES, |file| file.starts_with("rules/models/"));
    assert!(problems.is_empty(), "built-in rules have no mistakes: {problems:?}");
    book
}

/// The built-in rules.
///
/// # Panics
/// When a built-in file has a mistake, which a test excludes.
pub fn builtin() -> RuleBook {
    let (book, problems) = load(FILES);
    assert!(problems.is_empty(), "built-in rules have no mistakes: {problems:?}");
    book
}
