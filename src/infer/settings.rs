//! What is fixed for a whole run before execution: meshes, aliases, groups and flags from configuration and file directives, and
//! static facts of modules and classes. In: configuration, directives, project. Out: look-ups. Never: execution. Next: `statics.rs`.

use super::facts::{Defaults, Left};
use super::formula::{Atom, Formula, truth};
use super::model_axis;
use super::statics::Statics;
use super::value::{Flavour, Value};
use crate::ir::Const;
use crate::ir::annotation::{ClauseKind, Cond, Result_, TypeExpr, TypedTarget};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::{ProtocolRule, RuleBook};
use crate::source::reads::{Read, note, number};
use crate::source::{Files, Idx, Name};
use crate::types::mode::ParallelMode;
use crate::types::{Axis, AxisSet, Mesh, TensorType};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Names under which code keeps its configuration.
const CONFIG_NAMES: &[&str] =
    &["config", "cfg", "args", "self.config", "self.cfg", "self.args", "conf", "hparams", "parallel_config"];

/// Steps of a root, by its module.
pub type Allowances = FxHashMap<ModuleId, u64>;

/// Look-ups fixed for a run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Mesh axes of the configuration, in order.
    pub mesh: Option<Arc<Mesh>>,
    /// Meshes of file directives, by module, and of packages by prefix.
    module_meshes: FxHashMap<ModuleId, Arc<Mesh>>,
    package_meshes: Vec<(Name, Arc<Mesh>)>,
    /// What the program calls the axis that tables call `tp`, if its meshes have no axis of that name.
    model_axis: Option<Axis>,
    /// Whether that is the name of a group over which the project sums the gradients of marked parameters.
    summed_over: bool,
    /// `dp_cp` → dp, cp.
    pub aliases: Vec<(Name, Vec<Name>)>,
    /// Group expressions → axes.
    pub groups: Vec<(Name, Vec<Name>)>,
    /// Flags with a fixed value.
    pub flags: Vec<(Name, Const)>,
    /// Flags with several possible values.
    pub choices: Vec<(Name, Vec<Const>)>,
    /// Declared signatures of functions outside the project: (path, parameters, result).
    pub externs: Vec<Extern>,
    /// Assumptions by module.
    pub assumptions: Vec<(ModuleId, Cond)>,
    /// Types of parameters by name, from the configuration; `inputs` stands for those without one.
    pub defaults: Vec<(Name, TypeExpr)>,
    /// Parallel modes of the whole run, and of single files.
    pub modes: Vec<&'static dyn ParallelMode>,
    pub(super) module_modes: FxHashMap<ModuleId, Vec<&'static dyn ParallelMode>>,
    /// Functions that a decorator expands.
    pub(super) decorated: Arc<super::decorated::DecoratedFuncs>,
    /// The version of the library that the program is for.
    pub target_torch: Option<(u32, u32)>,
    /// Tensors are parts of whole ones: partition specs are followed everywhere.
    pub global: bool,
    pub wants_types: bool,
    /// The loss is declared as a mean over all tokens, not one of means.
    pub mean_over_tokens: bool,
    /// Axes over which gradients are averaged by code that is not seen.
    pub gradient_mean: Option<AxisSet>,
    /// The types of expressions too, not only of variables.
    pub wants_steps: bool,
    pub statics: Arc<Statics>,
    /// What module bodies leave under names, by module.
    pub(super) exports: Arc<Vec<Arc<Left>>>,
    /// The functions with defaults that module bodies leave.
    pub(super) left_defaults: Arc<Defaults>,
    /// Steps of each root, of the files with many.
    pub allowances: Arc<Allowances>,
    pub relevance: super::relevance::Relevance,
    /// Names that the project calls, as functions or methods.
    pub(super) called: Arc<FxHashSet<Name>>,
    pub specs: Arc<super::specs::Specs>,
    /// Attributes of classes that are set from outside.
    pub resets: Arc<super::resets::Resets>,
    /// Shardings that are declared apart from the code.
    pub shardings: Arc<super::declared::flow::Shardings>,
    /// Who sums gradients of parameters.
    pub(super) reducers: Arc<super::practice::reducers::Reducers>,
    /// What holds for unmarked parameters in files that are written for no framework.
    pub(super) own_protocol: Arc<Option<ProtocolRule>>,
    /// Where parameters are marked.
    pub marking: Arc<super::practice::marking::Marking>,
}

/// A declared signature of a function outside the project.
#[derive(Clone, Debug)]
pub struct Extern {
    pub path: Name,
    pub params: Vec<TypedTarget>,
    pub result: Result_,
}

impl Settings {
    /// Who sums gradients of parameters.
    pub fn reducers(&self) -> &super::practice::reducers::Reducers {
        note(|| Read::Reducers);
        &self.reducers
    }

    /// What holds for unmarked parameters of a module: what its framework says, or the project itself.
    pub fn protocol<'a>(&'a self, rules: &'a RuleBook, module: ModuleId) -> Option<&'a ProtocolRule> {
        note(|| Read::Reducers);
        self.statics.protocol(rules, module).or(self.own_protocol.as_ref().as_ref())
    }

    /// The declared signature of an external function.
    pub fn extern_of(&self, path: &str) -> Option<&Extern> {
        self.externs.iter().find(|e| e.path == path)
    }

    /// The configured type of a parameter.
    pub fn default_type(&self, name: &str) -> Option<&TypeExpr> {
        let named = self.defaults.iter().find(|(n, _)| n == name);
        named.or_else(|| self.defaults.iter().find(|(n, _)| n == "inputs")).map(|(_, t)| t)
    }

    /// Adds the directives of every module.
    pub fn add_directives(&mut self, project: &Project, rules: &RuleBook) {
        for (id, module) in project.modules.iter_enumerated() {
            for clause in module.ir.directives.iter().flat_map(|a| &a.clauses) {
                match &clause.kind {
                    ClauseKind::Mesh { axes, .. } => {
                        let axes = axes.iter().map(|a| (Axis::new(a.clone()), None)).collect();
                        let mesh = Arc::new(Mesh::new(axes));
                        if module.is_package {
                            self.package_meshes.push((module.name.clone(), mesh.clone()));
                        }
                        self.module_meshes.entry(id).or_insert(mesh);
                    }
                    ClauseKind::Alias { name, parts } => self.aliases.push((name.clone(), parts.clone())),
                    ClauseKind::Group { expr, axes } => self.groups.push((expr.clone(), axes.clone())),
                    ClauseKind::Extern { path, params, result } => {
                        self.externs.push(Extern { path: path.clone(), params: params.clone(), result: result.clone() })
                    }
                    ClauseKind::Mode(name) => {
                        self.module_modes.entry(id).or_default().extend(crate::types::mode::mode(name));
                    }
                    ClauseKind::Assume(cond) => self.assumptions.push((id, cond.clone())),
                    _ => {}
                }
            }
        }
        let names = self.axis_names();
        // What one file calls several axes may be one axis of the mesh of another.
        self.aliases.retain(|(name, _)| !names.contains(name));
        self.model_axis =
            model_axis::of_meshes(&names).or_else(|| model_axis::of_getters(project, rules, self, &names));
    }

    /// The name of the group over which the project sums the gradients of marked parameters, if the axis has its name from there.
    pub fn summed_over(&self) -> Option<&str> {
        self.summed_over.then(|| self.model_axis.as_ref().map(Axis::name)).flatten()
    }

    /// Takes the name of the axis over which layers are split from the sums of gradients, where nothing else names it.
    pub fn name_model_axis(&mut self, project: &Project, rules: &RuleBook, files: &Files) {
        self.summed_over = false;
        if self.model_axis.is_none() && !self.axis_names().iter().any(|axis| axis == model_axis::NAME) {
            self.model_axis = model_axis::of_reducers(project, self);
            self.summed_over = self.model_axis.is_some();
            let ruled = |module| self.statics.protocol(rules, module).is_some();
            if self.model_axis.is_none() && !project.modules.ids().any(ruled) {
                self.model_axis = model_axis::of_all_ranks(files);
            }
        }
    }

    /// Whether something tells which axis layers are split over: the program, or a framework that a module is written for.
    pub fn tells_model_axis(&self, rules: &RuleBook, module: ModuleId) -> bool {
        self.model_axis.is_some() || self.statics.protocol(rules, module).is_some()
    }

    /// The mesh declared for a module: by the file, its package, the configuration.
    pub fn mesh_of(&self, module: ModuleId) -> Option<Arc<Mesh>> {
        self.module_meshes.get(&module).cloned().or_else(|| self.mesh.clone())
    }

    pub fn mesh_of_named(&self, module: ModuleId, name: &str) -> Option<Arc<Mesh>> {
        self.module_meshes.get(&module).cloned().or_else(|| {
            let package = self.package_meshes.iter().filter(|(p, _)| name.starts_with(p.as_str()));
            package.max_by_key(|(p, _)| p.len()).map(|(_, m)| m.clone()).or_else(|| self.mesh.clone())
        })
    }

    pub fn axis_size(&self, axis: &Axis) -> Option<u64> {
        self.mesh.as_ref().and_then(|m| m.size(axis)).filter(|n| *n > 0)
    }

    /// An axis by name, as the meshes of the project call it.
    pub fn canonical(&self, name: &str) -> Axis {
        match &self.model_axis {
            Some(own) if name == model_axis::NAME => own.clone(),
            _ => Axis::new(name),
        }
    }

    /// Names of all axes of all meshes.
    fn axis_names(&self) -> Vec<Name> {
        let packages = self.package_meshes.iter().map(|(_, mesh)| mesh);
        let meshes = self.mesh.iter().chain(self.module_meshes.values()).chain(packages);
        let mut names: Vec<Name> =
            meshes.flat_map(|mesh| mesh.axes.iter().map(|(axis, _)| Name::from(axis.name()))).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// An alias or axis of the configuration, by name.
    pub fn axes_named(&self, name: &str) -> Option<AxisSet> {
        self.aliases
            .iter()
            .find(|(a, _)| a == name)
            .map(|(_, parts)| parts.iter().map(|p| Axis::new(p.clone())).collect())
    }

    /// An axis named in an annotation of a module.
    ///
    /// # Errors
    /// The name is not an axis of the declared mesh; the nearest one that is.
    pub fn axis_in(&self, module: ModuleId, name: &Name) -> Result<AxisSet, Option<Name>> {
        if let Some(axes) = self.axes_named(name) {
            return Ok(axes);
        }
        match self.mesh_of(module) {
            Some(mesh) if !mesh.axes.iter().any(|(a, _)| a.0 == *name) => {
                Err(nearest(name, mesh.axes.iter().map(|(a, _)| &a.0)))
            }
            _ => Ok(AxisSet::one(Axis::new(name.clone()))),
        }
    }

    /// The axis under which a finding on every axis is shown.
    pub fn any_axis(&self, module: ModuleId) -> Axis {
        self.mesh_of(module)
            .and_then(|m| m.axes.first().map(|(a, _)| a.clone()))
            .unwrap_or_else(|| Axis::new("any axis"))
    }

    /// The axes of a group expression that was declared.
    pub fn group_named(&self, text: &str) -> Option<AxisSet> {
        let (_, axes) = self.groups.iter().find(|(expr, _)| expr == text)?;
        Some(
            axes.iter()
                .flat_map(|a| {
                    self.axes_named(a)
                        .unwrap_or_else(|| AxisSet::one(Axis::new(a.clone())))
                        .iter()
                        .cloned()
                        .collect::<Vec<_>>()
                })
                .collect(),
        )
    }
    pub fn declared_group(&self, path: &str) -> Option<AxisSet> {
        self.group_named(path)
    }

    /// The value that the configuration fixes for a flag.
    pub fn flag(&self, atom: &Atom) -> Option<bool> {
        match atom {
            Atom::True(name) => self.fixed(name).and_then(truth).or_else(|| self.agreed(name, truth)),
            Atom::IsNone(name) => {
                let is_none = |c: &Const| Some(*c == Const::None);
                self.fixed(name).and_then(is_none).or_else(|| self.agreed(name, is_none))
            }
            Atom::Equals(name, c) => {
                let equal = |known: &Const| Some(same_choice(known, c));
                self.fixed(name).and_then(equal).or_else(|| self.agreed(name, equal))
            }
        }
    }
    /// What all possible values of a flag answer alike.
    fn agreed(&self, name: &str, answer: impl Fn(&Const) -> Option<bool>) -> Option<bool> {
        let (_, values) = self.choices.iter().find(|(n, _)| n == name)?;
        let first = answer(values.first()?)?;
        values.iter().all(|v| answer(v) == Some(first)).then_some(first)
    }
    /// The last value that a flag can have once it is none of the others.
    pub fn last_choice(&self, name: &str, excluded: &[&Const]) -> Option<Const> {
        let (_, values) = self.choices.iter().find(|(n, _)| n == name)?;
        let mut left = values.iter().filter(|v| !excluded.iter().any(|e| same_choice(v, e)));
        match (left.next(), left.next()) {
            (Some(last), None) => Some(last.clone()),
            _ => None,
        }
    }
    fn fixed(&self, name: &str) -> Option<&Const> {
        self.flags.iter().find(|(n, _)| n == name).map(|(_, c)| c)
    }
    pub fn fixed_value(&self, name: &str) -> Option<Value> {
        self.fixed(name).map(|c| Value::Const(c.clone()))
    }

    /// Whether an unknown value of this path is a configuration rather than a tensor.
    pub fn is_config(&self, path: &str) -> bool {
        let last = path.rsplit('.').next().unwrap_or(path);
        CONFIG_NAMES.contains(&path)
            || CONFIG_NAMES.contains(&last)
            || last.ends_with("_config")
            || last.ends_with("_args")
            || path.rsplit_once('.').is_some_and(|(base, _)| base != "self" && self.is_config(base))
    }

    /// Whether a name that is compared with 1 is a degree of parallelism, by the names of configurations: `config.tp > 1`, `args.mp_size != 1`.
    pub fn counts_ranks(&self, name: &str) -> bool {
        let axis = name.strip_suffix("_size").unwrap_or(name);
        matches!(axis, "tp" | "dp" | "cp" | "ep" | "mp" | "etp" | "world" | "tensor_parallel" | "model_parallel")
    }

    /// Whether a name is that of a rank, which differs between processes: `rank`, `tp_rank`. The rank of a matrix is not one.
    pub fn is_rank(&self, path: &str) -> bool {
        let last = path.rsplit('.').next().unwrap_or(path);
        // `get_tp_rank()` of another package is asked for one.
        let last = last.strip_suffix("()").and_then(|name| name.strip_prefix("get_")).unwrap_or(last);
        (last == "rank" || last.ends_with("_rank")) && !matches!(last, "lora_rank" | "low_rank" | "max_rank")
    }

    /// Whether a name is that of integers or booleans, which receive no gradient: ids, labels, positions, masks.
    pub fn is_index_name(&self, path: &str) -> bool {
        let last = path.rsplit('.').next().unwrap_or(path);
        let ends = ["_ids", "_mask", "_indices", "_positions", "_labels"];
        ends.iter().any(|end| last.ends_with(end))
            || matches!(
                last,
                "ids"
                    | "mask"
                    | "padding"
                    | "labels"
                    | "target"
                    | "targets"
                    | "position"
                    | "positions"
                    | "pos"
                    | "indices"
                    | "index"
                    | "cu_seqlens"
            )
    }

    /// Whether a name is that of a process group.
    pub fn is_group_name(&self, path: &str) -> bool {
        let last = path.rsplit('.').next().unwrap_or(path);
        matches!(last, "group" | "pg" | "process_group") || last.ends_with("_group") || last.ends_with("_pg")
    }

    pub fn declared_type(&self, _path: &str) -> Option<TensorType> {
        None
    }

    /// What a root of a module may spend beyond its own statements.
    pub fn allowance(&self, module: ModuleId) -> u64 {
        note(|| Read::Allowance(module.0));
        self.allowances.get(&module).copied().unwrap_or(super::limits::MAX_STEPS)
    }

    pub fn static_flavour(&self, _project: &Project, _rules: &RuleBook, func: FuncRef) -> Option<Flavour> {
        self.statics.flavour(func)
    }
    /// Defaults of parameters: from the text, and where that does not show them, from the execution of module bodies.
    pub fn static_defaults(&self, func: FuncRef) -> Vec<(u32, Value)> {
        self.statics.defaults(func, self.left_defaults.get(&func).map_or(&[], Vec::as_slice))
    }
    /// The decorator that expands a function.
    pub(super) fn decorated(&self, func: FuncRef) -> Option<&super::decorated::Decorated> {
        note(|| Read::Decorated(func.module.0));
        self.decorated.get(&func)
    }
    pub fn export(&self, module: ModuleId, name: &Name) -> Option<&Value> {
        note(|| Read::Export(module.0, number(name)));
        self.exports.get(module.index())?.names.get(name)
    }
    pub fn linearized(&self, _project: &Project, class: ClassRef) -> Arc<[ClassRef]> {
        self.statics.linearized(class)
    }
    pub fn class_member(&self, _project: &Project, _rules: &RuleBook, class: ClassRef, name: &Name) -> Option<Value> {
        self.statics.member(class, name)
    }
    pub fn dataclass_fields(&self, _project: &Project, class: ClassRef) -> Option<Vec<(Name, Option<Value>)>> {
        self.statics.dataclass_fields(class)
    }
}

/// Whether a configured value is the one that the code tests: a member of an enumeration is configured by its name.
fn same_choice(configured: &Const, tested: &Const) -> bool {
    match (configured, tested) {
        (Const::Str(a), Const::Str(b)) => a == b || b.rsplit('.').next() == Some(a.as_str()),
        (a, b) => a == b,
    }
}

/// A condition of an annotation as a formula.
pub fn cond_formula(cond: &Cond) -> Formula {
    match cond {
        Cond::Flag(name) => {
            let last = name.rsplit('.').next().unwrap_or(name);
            Formula::Atom(Atom::True(Name::from(last)))
        }
        Cond::Not(c) => cond_formula(c).negate(),
        Cond::And(items) => Formula::And(items.iter().map(cond_formula).collect()),
        Cond::Or(items) => Formula::Or(items.iter().map(cond_formula).collect()),
        Cond::Equals(name, c) => {
            let last = name.rsplit('.').next().unwrap_or(name);
            Formula::Atom(Atom::Equals(Name::from(last), c.clone()))
        }
        Cond::Const(b) => Formula::Const(*b),
    }
}

/// The candidate with the fewest edits, if that is few enough to be a slip.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a Name>) -> Option<Name> {
    candidates
        .filter(|c| !c.is_empty())
        .map(|c| (edits(name, c), c))
        .min_by_key(|(n, c)| (*n, (*c).clone()))
        .filter(|(n, c)| *n <= 1 + c.len() / 4)
        .map(|(_, c)| c.clone())
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

/// Whether a path is the `size` of what is named as a set of ranks: `tp.size`, `self.mesh.size`.
pub fn is_size_of_ranks(path: &str) -> bool {
    const RANKS: &[&str] = &["mesh", "group", "comm", "parallel", "dist", "world"];
    let mut parts = path.rsplit('.');
    let (Some("size"), Some(of)) = (parts.next(), parts.next()) else { return false };
    let of = of.to_ascii_lowercase();
    matches!(of.trim_start_matches('_'), "tp" | "dp" | "cp" | "ep" | "mp" | "sp" | "pp")
        || RANKS.iter().any(|word| of.contains(word))
}

/// Whether a name is a degree of parallelism: `tensor_model_parallel_size`, `world_size`, `_TP_WORLD_SIZE`.
pub fn is_degree(name: &str) -> bool {
    let lower = name.bytes().any(|b| b.is_ascii_uppercase()).then(|| name.to_ascii_lowercase());
    let name = lower.as_deref().unwrap_or(name).trim_start_matches('_');
    name == "world_size"
        || name.ends_with("_world_size")
        || name.ends_with("parallel_size")
        || name.ends_with("_degree")
        || matches!(name, "tp_size" | "cp_size" | "dp_size" | "ep_size" | "sp_size")
}
