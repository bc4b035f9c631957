//! Which axes a group, a mesh or a size has, by rule and by name. In: values. Out: [`AxisSet`]. Never: a name that says nothing: that is
//! an axis of its own. Source: DESIGN.md section 5, order of resolution. Next: `calls.rs`.

use super::value::{State, Val, last};
use crate::ir::Const;
use crate::rules::{Entry, Gives, RuleBook};
use crate::source::Name;
use crate::types::{Axis, AxisSet};

/// The axis of all ranks where no mesh says which axes they have.
pub const WORLD: &str = "world";

/// All ranks.
pub fn all_ranks() -> AxisSet {
    AxisSet::one(Axis::new(WORLD))
}

/// How code calls an axis, and the axes.
const WORDS: &[(&str, &[&str])] = &[
    ("data_parallel", &["dp"]),
    ("data", &["dp"]),
    ("dp", &["dp"]),
    ("context_parallel", &["cp"]),
    ("context", &["cp"]),
    ("cp", &["cp"]),
    ("tensor_model_parallel", &["tp"]),
    ("tensor_parallel", &["tp"]),
    ("model_parallel", &["tp"]),
    ("tensor", &["tp"]),
    ("tp", &["tp"]),
    ("mp", &["tp"]),
    ("pipeline_model_parallel", &["pp"]),
    ("pipeline_parallel", &["pp"]),
    ("pipe_parallel", &["pp"]),
    ("pp", &["pp"]),
    ("sequence_parallel", &["sp"]),
    ("sp", &["sp"]),
    ("expert_parallel", &["ep"]),
    ("expert_model_parallel", &["ep"]),
    ("expert", &["ep"]),
    ("ep", &["ep"]),
    ("expert_data_parallel", &["edp"]),
    ("expert_dp", &["edp"]),
    ("ep_dp", &["edp"]),
    ("edp", &["edp"]),
    ("efsdp", &["edp"]),
    ("expert_data", &["edp"]),
    ("expert_tensor_parallel", &["etp"]),
    ("expert_tp", &["etp"]),
    ("etp", &["etp"]),
    ("data_context_parallel", &["dp", "cp"]),
    ("data_parallel_cp", &["dp", "cp"]),
    ("loss", &["dp", "cp"]),
    ("dp_cp", &["dp", "cp"]),
    ("cp_dp", &["dp", "cp"]),
    ("dp_sp", &["dp", "sp"]),
    ("sp_dp", &["dp", "sp"]),
    ("dp_tp", &["dp", "tp"]),
    ("tp_dp", &["dp", "tp"]),
    ("tp_cp", &["cp", "tp"]),
    ("tp_ep", &["ep", "tp"]),
    ("dp_ep", &["dp", "ep"]),
    ("dp_replicate", &["dp_replicate"]),
    ("replicate", &["dp_replicate"]),
    ("dp_shard", &["dp_shard"]),
    ("shard", &["dp_shard"]),
    ("dp_shard_cp", &["dp_shard", "cp"]),
    ("fsdp", &["fsdp"]),
    ("ddp", &["dp"]),
    ("world", &[WORLD]),
];

/// Endings of names of groups, meshes and sizes.
const GROUPS: &[&str] = &["_process_group", "_proc_group", "_group", "_pg", "_mesh", "_device_mesh", "_comm"];
const SIZES: &[&str] = &["_world_size", "_group_size", "_parallel_size", "_size", "_degree", "_ranks"];

/// The axes that a name of a group speaks of: `dp_group`, `self.expert_data_parallel_pg`.
pub fn of_group_name(name: &str) -> Option<AxisSet> {
    // A getter of what is not known says it as well.
    let name = name.strip_suffix("()").unwrap_or(name);
    if !may_end(name, &["group", "pg", "mesh", "comm"]) {
        return None;
    }
    let lower = last(name).to_lowercase();
    let lower = lower.trim_matches('_').trim_start_matches("get_");
    let stem = GROUPS.iter().find_map(|end| lower.strip_suffix(end))?;
    words(stem)
}

/// Whether a name may end so, whatever its case; underscores do not count.
fn may_end(name: &str, ends: &[&str]) -> bool {
    let name = name.trim_end_matches('_').as_bytes();
    let ends_so = |end: &&str| {
        let tail = name.len().checked_sub(end.len()).and_then(|at| name.get(at..));
        tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end.as_bytes()) || !tail.is_ascii())
    };
    ends.iter().any(ends_so)
}

/// The axes of a member of groups: `groups["dp"]`.
fn of_member(text: &str) -> Option<AxisSet> {
    let (base, member) = text.rsplit_once('.')?;
    let base = last(base).to_lowercase();
    (base.contains("group") || base.contains("mesh") || base.ends_with("pgs")).then(|| words(&member.to_lowercase()))?
}

/// The axes that a name of a size speaks of: `dp_size`, `cp_degree`, `world_size`.
pub fn of_size_name(name: &str) -> Option<AxisSet> {
    if !may_end(name, &["size", "degree", "ranks"]) {
        return None;
    }
    let lower = last(name).to_lowercase();
    let lower = lower.trim_matches('_').trim_start_matches("num_").trim_start_matches("n_");
    if lower == "world_size" {
        return Some(one(WORLD));
    }
    // The whole of `tensor_model_parallel` is the word, not what stands before `_parallel_size`.
    if let Some(axes) = lower.strip_suffix("_size").filter(|word| word.ends_with("_parallel")).and_then(words) {
        return Some(axes);
    }
    let stem = SIZES.iter().find_map(|end| lower.strip_suffix(end))?;
    // A batch or a shard has a size too.
    (!matches!(stem, "data" | "context" | "loss" | "tensor" | "shard" | "expert" | "replicate")).then(|| words(stem))?
}

/// The axes of a word: `dp`, `data_parallel`.
pub fn words(stem: &str) -> Option<AxisSet> {
    let stem = stem.trim_end_matches("_world").trim_end_matches("_comm");
    let (_, axes) = WORDS.iter().find(|(word, _)| *word == stem)?;
    Some(axes.iter().map(|a| Axis::new(*a)).collect())
}

pub fn one(name: &str) -> AxisSet {
    AxisSet::one(Axis::new(name))
}

/// Whether ranks of an axis have other tokens than each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data,
    /// The same tokens, other parts of the model.
    Model,
    /// It depends.
    Either,
}

pub fn kind(axis: &Axis) -> Kind {
    let name = axis.name();
    if matches!(name, "tp" | "pp" | "etp" | "tensor" | "pipe") {
        return Kind::Model;
    }
    let data = ["dp", "cp", "fsdp", "edp", "hsdp", "data", "replicate", "shard", WORLD];
    if data.contains(&name) || name.starts_with("dp_") || name.ends_with("_dp") {
        return Kind::Data;
    }
    Kind::Either
}

/// What code says that has a model axis, and what it says of one that has a single rank.
const MODEL_AXIS: &[&str] = &[
    "get_tensor_model_parallel",
    "get_tensor_parallel",
    "get_pipeline_model_parallel",
    "tensor_model_parallel_size",
    "tp_group",
];
const SINGLE: &[&str] = &[
    "tensor_model_parallel_size=1",
    "tensor_model_parallel_size = 1",
    "model_parallel_size == 1",
    "tp_size = 1",
    "tp_size=1",
    "tp_size == 1",
    "tp=1",
    "tp = 1",
    "tp == 1",
];

/// Whether a file uses a model axis that nothing says to have a single rank.
pub fn says_model_axis(text: &str) -> bool {
    MODEL_AXIS.iter().any(|word| text.contains(word)) && !SINGLE.iter().any(|word| text.contains(word))
}

impl State {
    /// The parts of a mesh dim or alias of one.
    pub fn expand(&self, name: &str) -> AxisSet {
        if let Some(parts) = self.aliases.get(name) {
            return parts.iter().cloned().collect();
        }
        if self.world.as_ref().is_some_and(|w| w.contains(&Axis::new(name))) {
            return one(name);
        }
        words(name).unwrap_or_else(|| one(name))
    }

    /// All ranks.
    pub fn everyone(&self) -> AxisSet {
        (*self.world).clone().unwrap_or_else(|| one(WORLD))
    }

    /// The axes that a value denotes as a group; `None` stands for all ranks.
    pub fn axes(&self, value: &Val) -> Option<AxisSet> {
        match value {
            Val::Group(axes) => Some(axes.clone()),
            Val::Mesh(axes) => Some(axes.iter().cloned().collect()),
            Val::Const(Const::None) => Some(self.everyone()),
            Val::Const(Const::Str(name)) => Some(self.expand(name)),
            Val::Path(path) if last(path) == "WORLD" => Some(self.everyone()),
            Val::Tuple(items) if items.len() == 2 => match items.as_slice() {
                [mesh, Val::Const(Const::Int(_))] => self.axes(mesh).filter(|a| a.len() == 1),
                _ => None,
            },
            Val::Named(text) => {
                let known = of_group_name(text).or_else(|| of_member(text)).or_else(|| self.same.get(text).cloned());
                Some(known.unwrap_or_else(|| AxisSet::one(Axis::variable(text))))
            }
            _ => None,
        }
    }

    /// A part of a mesh.
    pub fn slice(&self, mesh: &Val, index: &Val) -> Option<Val> {
        let named = |v: &Val| v.text().cloned();
        let names: Vec<Name> = match index {
            Val::Tuple(items) => items.iter().map(named).collect::<Option<_>>()?,
            one => vec![named(one)?],
        };
        let is_mesh = match mesh {
            Val::Mesh(_) => true,
            Val::Named(text) | Val::Path(text) => last(text).to_lowercase().contains("mesh"),
            _ => false,
        };
        is_mesh
            .then(|| Val::Mesh(names.iter().flat_map(|n| self.expand(n).iter().cloned().collect::<Vec<_>>()).collect()))
    }

    /// The dim of a mesh that an argument names.
    pub fn dim(&self, mesh: &[Axis], dim: Option<&Val>) -> Option<AxisSet> {
        match dim {
            None | Some(Val::Const(Const::None)) => Some(mesh.iter().cloned().collect()),
            Some(Val::Const(Const::Str(name))) => Some(self.expand(name)),
            Some(Val::Const(Const::Int(n))) => {
                usize::try_from(*n).ok().and_then(|n| mesh.get(n)).map(|a| AxisSet::one(a.clone()))
            }
            Some(_) => None,
        }
    }
}

/// What a getter of the rules gives for these keyword arguments.
pub fn getter(rules: &RuleBook, path: &str, keywords: &[(Name, Val)]) -> Option<(Gives, AxisSet)> {
    let Some(Entry::Group(rule)) = rules.get(path) else { return None };
    let mut axes = &rule.axes;
    for (name, value) in keywords {
        match (value, rule.with.iter().find(|(n, _)| n == name)) {
            (Val::Const(Const::Bool(true)), Some((_, with))) => axes = with,
            (Val::Const(Const::Bool(_)), _) => {}
            _ => return None,
        }
    }
    Some((rule.gives, axes.iter().map(|a| Axis::new(a.clone())).collect()))
}
