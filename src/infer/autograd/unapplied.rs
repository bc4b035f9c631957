//! Column-parallel layers without the function that sums the gradient of their input, where the project has such a function and applies it
//! nowhere, beside one that sums in the forward and is applied. In: inputs of layers that no caller gives a type, derived functions, texts.
//! Out: findings. Never: a layer whose input a caller or a collective types, nor a project in which any function of that kind is applied.
//! Source: the pair f and g of Megatron-LM (arXiv 1909.08053, section 3). Next: `root.rs`, which asks.

use super::super::finding::{Finding, FindingKind};
use super::super::machine::Machine;
use super::super::output::{DerivedRow, OpenInput, Output};
use super::super::practice::near;
use super::super::value::Value;
use super::super::vocabulary::imports;
use super::derive::Case;
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::{Entry, RuleBook};
use crate::source::{FileId, Files, Name, Place, Span};
use crate::types::{Axis, AxisType, Reason, Spmd, Term};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Functions that apply functions are looked through so deep.
const MOST_WRAPPERS: usize = 3;

/// What sums gradients of activations elsewhere in a project.
const ELSEWHERE: &[&str] = &[
    "distributed.nn",
    "dist.nn.",
    "distnn",
    "_functional_collectives",
    "funcol",
    "gather_from_sequence",
    "grad_placements",
    "register_autograd",
];

/// What a project has that trains nothing.
const UNTRAINED: &[&str] = &["no_grad", "inference_mode"];

/// Hooks that may sum the gradient of an input.
const HOOKS: &[&str] = &[
    "register_hook(",
    "backward_hook(",
    "backward_pre_hook(",
    "forward_pre_hook(",
    "all_reduce(p.grad",
    "all_reduce(param.grad",
    ".detach()",
];

/// A function that is defined in the project, or imported.
struct Known {
    name: Name,
    at: Place,
}

impl Machine<'_> {
    /// Notes the inputs of a layer that meet what is split, where the result is split as well.
    pub fn note_open_inputs(&mut self, at: FuncRef, given: &[Value], result: &Value) {
        let func = self.project.func(at);
        if func.class.is_none() || func.name != "forward" || !self.w.modes.grad || self.w.modes.typecheck.is_some() {
            return;
        }
        let Some(result) = self.tensor(result).map(|t| t.local.clone()) else { return };
        // What a collective made of the product is a row-parallel layer, whose input is split.
        let exchanged = |axis: &Axis| {
            let mut at = result.get(axis).origin.as_ref();
            while let Some(origin) = at {
                if matches!(origin.reason, Reason::Collective(_)) {
                    return true;
                }
                at = origin.from.as_ref();
            }
            false
        };
        let known = |m: &Self, value: &Value| match value {
            Value::Sym(path) => m.symbol(path).and_then(|id| m.w.heap.tensor(id)).map(|t| t.local.clone()),
            value => m.tensor(value).map(|t| t.local.clone()),
        };
        for (param, value) in func.params.iter().zip(given) {
            let Some(local) = known(self, value) else { continue };
            for (axis, state) in local.listed() {
                let open = state.set.contains(Spmd::Replicate) && state.set.contains(Spmd::Varying);
                // Element by element a part meets a part; a product with a matrix takes the whole input.
                let narrowed = state
                    .origin
                    .as_ref()
                    .filter(|o| matches!(&o.reason, Reason::Narrowed(op) if op.ends_with(".linear")));
                if let Some(origin) = narrowed
                    && open
                    && !state.set.contains(Spmd::Invariant)
                    && result.get(axis).set == AxisType::V
                    && !exchanged(axis)
                {
                    let open = OpenInput { func: at, param: param.name.clone(), axis: axis.clone(), at: origin.place };
                    if !self.out.open_inputs.contains(&open) {
                        self.out.open_inputs.push(open);
                    }
                }
            }
        }
    }
}

/// Inputs of layers whose gradient nothing sums.
pub fn unapplied(project: &Project, rules: &RuleBook, files: &Files, out: &Output) -> Vec<Finding> {
    if out.open_inputs.is_empty() || ELSEWHERE.iter().any(|word| files.any_says(word)) {
        return Vec::new();
    }
    // Layers of a project that trains nothing have inputs without gradients.
    if !files.any_says(".backward(") && UNTRAINED.iter().any(|word| files.any_says(word)) {
        return Vec::new();
    }
    let sums_back = |case: &Case| {
        let mut steps = case.backward.iter().flat_map(|t| t.steps());
        steps.any(|s| matches!(s, Term::ReduceScatter { .. } | Term::AllReduce { .. }))
            && !matches!(*case.forward, Term::Arg(_))
    };
    let gathers = derived_any(project, &out.derived, sums_back);
    let copies = derived(project, &out.derived, |case, (source, result)| {
        (source, result) == (Spmd::Invariant, Spmd::Replicate) && matches!(*case.forward, Term::Arg(_))
    });
    let sums = derived(project, &out.derived, |case, (source, result)| {
        (source, result) == (Spmd::Partial, Spmd::Invariant) && matches!(*case.forward, Term::AllReduce { .. })
    });
    let applied = |known: &&Known| is_applied(files, known.at.file, &known.name, MOST_WRAPPERS);
    if gathers.iter().any(|known| applied(&known)) {
        return Vec::new();
    }
    let applied_copies: Vec<FileId> = copies.iter().filter(applied).map(|copy| copy.at.file).collect();
    // A file that has functions of its own is judged by these, any other by those of the whole project.
    let own = |file: FileId| {
        let here = |known: &&Known| known.at.file == file;
        let has = copies.iter().any(|copy| here(&copy));
        let silent = if has { applied_copies.contains(&file) } else { !applied_copies.is_empty() };
        let copy = copies.iter().find(|copy| !silent && (!has || here(copy)))?;
        let sum = sums.iter().filter(|sum| sum.at.file == copy.at.file).find(applied)?;
        Some((copy, sum.name.clone()))
    };
    let mut imports: BTreeMap<ModuleId, Option<(Known, Name)>> = BTreeMap::new();
    let mut found: Vec<Finding> = Vec::new();
    // A caller in the same file has shown what is missing.
    let is_told = |f: &Finding, file: FileId| f.place.file == file && f.kind.is_mixed();
    let hooked = |file: FileId| HOOKS.iter().any(|word| files.says(file, word));
    let open = |input: &&OpenInput| {
        let layer = project.func(input.func).class.map(|class| {
            let class = ClassRef { module: input.func.module, class };
            project.class(class).name.clone()
        });
        let near = || layer.iter().flat_map(|name| files.saying(name));
        !out.findings.iter().any(|f| is_told(f, input.at.file)) && !hooked(input.at.file) && !near().any(hooked)
    };
    for input in out.open_inputs.iter().filter(open) {
        let imported = imports.entry(input.func.module).or_insert_with_key(|m| imported(project, rules, files, *m));
        let imported = imported.as_ref().filter(|_| applied_copies.is_empty());
        let pair = own(input.at.file).or(imported.map(|(copy, sum)| (copy, sum.clone())));
        if let Some((copy, sum)) = pair
            && !found.iter().any(|f| f.place == input.at)
        {
            let kind = FindingKind::CopyLeftOut {
                input: input.param.clone(),
                axis: input.axis.clone(),
                copy: copy.name.clone(),
                copy_at: copy.at,
                sum,
            };
            found.push(Finding::everywhere(input.at, kind));
        }
    }
    found
}

/// The classes with a derived type on some axis in some configuration for which that holds, each once.
fn derived(project: &Project, rows: &[Arc<DerivedRow>], is: impl Fn(&Case, (Spmd, Spmd)) -> bool) -> Vec<Known> {
    derived_any(project, rows, |case: &Case| {
        let types = case.principal.as_ref().filter(|p| p.sources.len() == 1).map(|p| (p.sources[0].0, p.result.0));
        case.communicates() && case.trouble.is_none() && types.is_some_and(|types| is(case, types))
    })
}

/// The classes with a case for which that holds, each once.
fn derived_any(project: &Project, rows: &[Arc<DerivedRow>], of_case: impl Fn(&Case) -> bool) -> Vec<Known> {
    let mut classes: Vec<ClassRef> = rows.iter().filter(|r| r.cases.iter().any(&of_case)).map(|r| r.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let known = |class: ClassRef| {
        let c = project.class(class);
        Known { name: c.name.clone(), at: Place { file: project.file(class.module), span: c.name_span } }
    };
    classes.into_iter().map(known).collect()
}

/// What a module imports of the rules to sum the gradient and does not use, beside what it uses to sum a value.
fn imported(project: &Project, rules: &RuleBook, files: &Files, module: ModuleId) -> Option<(Known, Name)> {
    let typed = |path: &str, types: (Spmd, Spmd)| match rules.get(path) {
        Some(Entry::Collective(rule)) => match rule.transitions.as_slice() {
            [(None, t)] => t.source.set.contains(types.0) && t.result.set.known() == Some(types.1),
            _ => false,
        },
        _ => false,
    };
    let imports = imports(project, module);
    let of = |types: (Spmd, Spmd)| imports.iter().filter(move |(_, path)| typed(path, types)).map(|(name, _)| name);
    let file = project.file(module);
    let uses = |name: &&String| !uses(files, file, name).is_empty();
    let copies = || of((Spmd::Invariant, Spmd::Replicate));
    if copies().any(|name| uses(&name)) {
        return None;
    }
    let sum = Name::from(of((Spmd::Partial, Spmd::Invariant)).find(uses)?.as_str());
    let name = Name::from(copies().next()?.as_str());
    let start = u32::try_from(files[file].whole().find(name.as_str())?).ok()?;
    let span = Span::new(start, start + u32::try_from(name.len()).ok()?);
    Some((Known { name, at: Place { file, span } }, sum))
}

/// Whether anything but its own definition and imports names a function of a file, or a function that applies it. A file with a definition of
/// its own means that.
fn is_applied(files: &Files, home: FileId, name: &str, depth: usize) -> bool {
    let other = |file: FileId| {
        let text = files[file].whole();
        file != home && ["class ", "def "].iter().any(|word| near::has_word(text, &format!("{word}{name}")))
    };
    let by = |file: FileId| {
        uses(files, file, name).into_iter().any(|around| match around {
            Some(wrapper) if depth > 0 && wrapper != name.to_lowercase() => {
                is_applied(files, file, &wrapper, depth - 1)
            }
            Some(_) => false,
            None => true,
        })
    };
    files.saying(name).filter(|file| !other(*file)).any(by)
}

/// The uses of a name in a file: for each the function at the top of the module that does nothing but return it applied; `None`: anything
/// else, a value that is handed on as well.
fn uses(files: &Files, file: FileId, name: &str) -> Vec<Option<String>> {
    let (text, name) = (near::bare(files[file].whole()), name.to_lowercase());
    let mut found = Vec::new();
    let mut around: Option<String> = None;
    let mut listed = false;
    let mut lines = 0;
    for line in text.lines() {
        let bare = line.trim();
        let at_top = line.len() == line.trim_start().len();
        if at_top && !bare.is_empty() && !bare.starts_with(')') {
            let rest = bare.strip_prefix("def ").filter(|_| !bare.starts_with('@'));
            around = rest.and_then(|rest| rest.split('(').next()).map(str::to_string);
            lines = 0;
        } else if !bare.is_empty() && !bare.starts_with(['"', '\'']) {
            lines += 1;
        }
        // What is imported, listed or defined is not used yet.
        let defines = ["class ", "def "].iter().any(|word| {
            bare.strip_prefix(word).and_then(|rest| rest.strip_prefix(name.as_str())).is_some_and(|rest| {
                let end = rest.trim_start_matches(char::is_alphanumeric).len() == rest.len();
                end && !near::has_word(rest, &name)
            })
        });
        let starts = ["import ", "from ", "__all__"].iter().any(|word| bare.starts_with(word));
        let names = starts || listed || defines;
        listed = (starts && bare.ends_with(['(', '['])) || listed && !bare.contains([')', ']']);
        if !names && near::has_word(bare, &name) {
            let given = bare.strip_prefix("return ").and_then(|rest| rest.strip_prefix(name.as_str()));
            let thin = lines == 1 && given.is_some_and(|rest| rest.starts_with(['(', '.']));
            found.push(around.clone().filter(|_| thin));
        }
    }
    found
}
