//! The TOML format of rule files, as written. In: text. Out: serde structs with spans where mistakes are likely.
//! Never: expansion or checks, see `load.rs`. The format is described in `rules/README.md`. Next: `load.rs`.

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// A rule file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// Default source of the entries.
    pub source: Option<String>,
    #[serde(default)]
    pub op: Vec<Op>,
    #[serde(default)]
    pub module: Vec<Module>,
    #[serde(default)]
    pub collective: Vec<Collective>,
    #[serde(default)]
    pub intrinsic: Vec<Intrinsic>,
    #[serde(default)]
    pub group: Vec<Group>,
    #[serde(default)]
    pub layer: Vec<Layer>,
    #[serde(default)]
    pub mark: Vec<Mark>,
    #[serde(default)]
    pub alias: Vec<Alias>,
    #[serde(default)]
    pub protocol: Vec<Protocol>,
    #[serde(default, rename = "plan-style")]
    pub plan_style: Vec<PlanStyle>,
    #[serde(default)]
    pub wrapper: Vec<Wrapper>,
    #[serde(default, rename = "gradient-norm")]
    pub gradient_norm: Vec<GradientNorm>,
    #[serde(default, rename = "loss-scaler")]
    pub loss_scaler: Vec<LossScaler>,
    /// Functions of the frameworks that need nothing but "what comes in goes out" or "nothing is known".
    #[serde(default)]
    pub typecheck: Option<Typecheck>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Op {
    pub names: Vec<Spanned<String>>,
    #[serde(default)]
    pub spell: Vec<Spanned<String>>,
    pub args: Spanned<String>,
    pub kind: Spanned<String>,
    #[serde(default)]
    pub tensors: Vec<Spanned<String>>,
    #[serde(default)]
    pub index: Vec<Spanned<String>>,
    #[serde(default)]
    pub divisor: Vec<Spanned<String>>,
    pub shape: Option<Spanned<String>>,
    pub result: Option<Spanned<String>>,
    #[serde(default)]
    pub nondiff: bool,
    #[serde(default)]
    pub fresh_grad: bool,
    #[serde(default)]
    pub identity: bool,
    #[serde(default)]
    #[expect(dead_code, reason = "part of the format; read by the analysis of scales")]
    pub elementwise_scale: bool,
    pub dims: Option<String>,
    /// Dims over which the operation couples elements; read by shard propagation.
    pub whole: Option<Spanned<toml::Value>>,
    /// Dims whose elements it divides by their sum: with parts of them it gives something else.
    pub normalises: Option<Spanned<toml::Value>>,
    /// What a reduction over a split dim leaves to be done over the ranks.
    pub pending: Option<Spanned<String>>,
    /// The argument that the operation writes.
    pub mutates: Option<Spanned<String>>,
    /// The result is zero everywhere, which is a legal pending sum too.
    #[serde(default)]
    pub zero: bool,
    pub source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Module {
    pub names: Vec<Spanned<String>>,
    pub call: Option<Spanned<String>>,
    pub args: Option<Spanned<String>>,
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// Signature of a call of the module.
    pub forward: Option<Spanned<String>>,
    /// Parameters that exist only if these constructor arguments are true.
    #[serde(default)]
    pub params_when: BTreeMap<String, toml::Value>,
    #[serde(default)]
    #[expect(dead_code, reason = "part of the format; buffers carry no gradient and no type yet")]
    pub buffers: BTreeMap<String, toml::Value>,
    pub source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Collective {
    pub names: Vec<Spanned<String>>,
    /// Modules that export the bare names; a leading `*.` matches any package.
    #[serde(default)]
    pub modules: Vec<String>,
    pub args: Spanned<String>,
    pub op: String,
    pub form: Option<Spanned<String>>,
    pub input: Spanned<String>,
    pub output: Option<Spanned<String>>,
    pub group: Option<Spanned<String>>,
    #[serde(default)]
    pub default_group: Vec<String>,
    /// `P|V -> I`
    #[serde(rename = "type")]
    pub transition: Option<Spanned<String>>,
    /// Types under a condition on an argument; the first that holds is taken before `type`.
    #[serde(default)]
    pub when: Vec<When>,
    #[serde(default)]
    pub legal: Vec<Spanned<String>>,
    #[serde(default)]
    pub expert: Vec<Spanned<String>>,
    #[serde(default)]
    pub moves_shard: bool,
    pub reduce_op: Option<Spanned<String>>,
    #[serde(default)]
    pub differentiable: Option<bool>,
    pub repair: Option<String>,
    pub source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    pub arg: Spanned<String>,
    /// The value as written in Python: `False`, `None`, `"mean"`.
    pub is: String,
    #[serde(rename = "type")]
    pub transition: Spanned<String>,
}

/// A function with a meaning of its own in the checker (`assert_type`, `no_grad`, `get_rank`, ...).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Intrinsic {
    pub names: Vec<Spanned<String>>,
    #[serde(default)]
    pub modules: Vec<String>,
    pub does: Spanned<String>,
    pub args: Option<Spanned<String>>,
    pub group: Option<String>,
    #[serde(default)]
    pub default_group: Vec<String>,
    /// Which argument plays which part: `{ states = "state_shardings" }`.
    #[serde(default)]
    pub roles: BTreeMap<String, String>,
    pub source: Option<String>,
}

/// Expressions that denote a process group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Getters and globals by qualified name; attributes as `.tp_group`.
    pub names: Vec<Spanned<String>>,
    #[serde(default)]
    pub modules: Vec<String>,
    pub axes: Vec<String>,
    /// Axes when a keyword argument is true: `with_context_parallel = ["dp", "cp"]`.
    #[serde(default)]
    pub with: BTreeMap<String, Vec<String>>,
    /// What the name gives: `group` (default), `rank`, `size`.
    pub gives: Option<Spanned<String>>,
    pub source: Option<String>,
}

/// A layer whose parameters are split over the ranks of a group: what a call of an instance takes and gives there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Layer {
    pub names: Vec<Spanned<String>>,
    #[serde(default)]
    pub modules: Vec<String>,
    /// The constructor.
    pub args: Spanned<String>,
    /// A call of an instance.
    pub forward: Spanned<String>,
    pub input: Spanned<String>,
    /// The constructor argument that is the group.
    pub group: Option<Spanned<String>>,
    #[serde(default)]
    pub default_group: Vec<String>,
    /// Other axes under a condition; the first that holds.
    #[serde(default)]
    pub groups: Vec<GroupCase>,
    /// Other types under a condition; the first that holds goes before `type`.
    #[serde(default)]
    pub cases: Vec<Case>,
    #[serde(rename = "type")]
    pub transition: Option<Spanned<String>>,
    /// `output`, or `output, bias`: a tuple whose second element is the bias that was not added.
    pub result: Option<Spanned<String>>,
    /// Parameters and how they are split: `weight = "S(0)"`.
    #[serde(default)]
    pub params: BTreeMap<String, Spanned<String>>,
    /// Attributes that turn the collectives off, whatever they are set to.
    #[serde(default)]
    pub switches: Vec<String>,
    /// Whether it is made of other modules: where its source is in the project, calls run it.
    #[serde(default)]
    pub open: bool,
    /// What sources of other versions keep instead of something that a condition names; without any of them it is false there.
    #[serde(default)]
    pub kept_as: BTreeMap<String, Vec<String>>,
    pub source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupCase {
    #[serde(rename = "if")]
    pub condition: Spanned<String>,
    pub axes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(rename = "if")]
    pub condition: Spanned<String>,
    #[serde(rename = "type")]
    pub transition: Spanned<String>,
}

/// An attribute of a parameter that says how it is split.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mark {
    /// Attributes, without a dot.
    pub names: Vec<Spanned<String>>,
    pub axes: Vec<String>,
    /// What a parameter with the mark is on these axes; default `V`.
    #[serde(rename = "type")]
    pub set: Option<Spanned<String>>,
    /// The attribute that names the dim.
    pub dim: Option<String>,
    /// A variable of the code that sets the mark, and the axes when it is true.
    pub unless: Option<String>,
    #[serde(default)]
    pub else_axes: Vec<String>,
    pub source: Option<String>,
}

/// What code on a framework may rely on for parameters without a mark.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Protocol {
    /// Packages; a file that imports from one follows the protocol.
    pub packages: Vec<String>,
    /// The axes over which an unmarked parameter is whole and its gradient not summed.
    pub axes: Vec<String>,
    /// Parts of names of parameters whose gradients the framework sums without a mark.
    #[serde(default)]
    pub summed_names: Vec<String>,
    pub source: Option<String>,
}

/// Something that sums the gradients of a model over data-parallel ranks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Wrapper {
    pub names: Vec<String>,
    #[serde(default)]
    pub keeps: Keeps,
    #[serde(default)]
    pub in_place: bool,
    pub clip: Option<String>,
    pub whole_where: Option<String>,
    pub no_sync: Option<String>,
    #[serde(default)]
    pub namesakes: Vec<String>,
    pub sync_flag: Option<String>,
    pub sync_method: Option<String>,
    #[serde(default)]
    pub ignores: Vec<String>,
    pub source: Option<String>,
}

/// What a rank keeps of each parameter of a wrapped model.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Keeps {
    #[default]
    Whole,
    /// A part, in a plain tensor.
    Shards,
    /// A part, in a distributed tensor.
    Distributed,
}

/// Functions that take the norm of the gradients of their first argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GradientNorm {
    pub names: Vec<String>,
    /// The first argument are tensors themselves.
    #[serde(default)]
    pub of_tensors: bool,
}

/// Scalers of losses that look for overflow in the gradients that a rank has, and wrappers that leave it a part of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LossScaler {
    pub names: Vec<String>,
    pub parts: Vec<String>,
    pub instead: String,
    pub whole_where: Option<String>,
}

/// A way to split a module over the ranks, by the word that plans have for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlanStyle {
    pub names: Vec<String>,
    /// What the module takes and gives: `whole` on every rank, or `part`; without it, anything, and what it takes.
    pub takes: Option<Held>,
    pub gives: Option<Held>,
    pub source: Option<String>,
}

/// Of a value on the ranks of an axis.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    Whole,
    Part,
}

/// Another path of the same thing: `megatron.mpu` for `megatron.core.parallel_state`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    pub from: String,
    pub to: String,
}

/// The operator table of the run-time checker, which is stricter than the mathematics; it holds inside `typecheck()`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Typecheck {
    #[serde(default)]
    pub linear: Vec<String>,
    #[serde(default)]
    pub multilinear: Vec<String>,
    #[serde(default)]
    pub division: Vec<String>,
    #[serde(default)]
    pub affine: Vec<String>,
    /// Deterministic factories.
    #[serde(default)]
    pub factories: Vec<String>,
    /// Not intercepted: metadata, bookkeeping, properties.
    #[serde(default)]
    pub passthrough: Vec<String>,
}
