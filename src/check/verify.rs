//! Rules against the source that they describe: every mapping function that a tree defines is derived from its own body, and compared
//! with its row of the tables. In: the tables, the tables without those rows, and the tree. Out: [`VerifiedRow`]s.
//! Never: a change to the tables. Source: DESIGN.md section 6. Next: `check.rs`.

use super::settings;
use crate::config::Config;
use crate::infer::autograd::{Case, shown_dim};
use crate::infer::output::Exit;
use crate::infer::{Settings, Taken, infer, wrapper_cases};
use crate::ir::Const;
use crate::project::{FuncRef, Project, Resolved};
use crate::rules::collective::DimRef;
use crate::rules::{CollectiveRule, Entry, Pattern, RuleBook, Transition};
use crate::source::{FileId, Files, Name};
use crate::syntax;
use crate::types::{AxisState, AxisType, LocalType, Spmd};
use rayon::prelude::*;

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Agrees,
    /// What was derived instead.
    Disagrees(String),
    /// The function is there, but its type could not be derived.
    NotDerived,
    NotFound,
}

/// A row of a table and what the source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedRow {
    pub function: String,
    pub declared: String,
    pub verdict: Verdict,
}

/// Derives every function of the tables from the files. `bare` lacks the rows that are verified.
pub fn verify(config: &Config, rules: &RuleBook, bare: &RuleBook, files: &Files) -> Vec<VerifiedRow> {
    let ids: Vec<FileId> = files.ids().collect();
    let irs = ids.par_iter().map(|id| (*id, syntax::parse(&files[*id].text).ir)).collect();
    let project = Project::new(files, irs, &[]);
    let mut settings: Settings = settings(config, super::Want::Types);
    let output = infer(&project, bare, files, &mut settings, &Taken::later(bare, files, None), None);
    let mut out = Vec::new();
    for (module, file) in project.modules.iter_enumerated() {
        let functions = file.ir.funcs.iter_enumerated().filter(|(_, f)| rules.may_name(&f.name));
        for at in functions.map(|(func, _)| FuncRef { module, func }) {
            let path = project.qualified(at);
            let Some(Entry::Collective(rule)) = rules.get(&path).filter(|_| bare.get(&path).is_none()) else {
                continue;
            };
            let found = derived(&project, bare, files, &settings, (rule, at), &output.exits);
            out.push(row(rule, &path, found));
        }
    }
    // A pattern that nothing fits is no row of its own, nor is another name of a function that has one.
    let is_missing = |rule: &CollectiveRule| {
        let own = !rule.name.starts_with('*') && bare.get(&rule.name).is_none();
        own && !matches!(project.path(&rule.name), Resolved::Func(_))
    };
    let missing = rules.collectives().filter(|rule| is_missing(rule));
    out.extend(missing.map(|rule| row(rule, &rule.name, Verdict::NotFound)));
    out.sort_by(|a, b| a.function.cmp(&b.function));
    out
}

/// What the source of a function says of its row.
fn derived(
    project: &Project,
    bare: &RuleBook,
    files: &Files,
    settings: &Settings,
    (rule, func): (&CollectiveRule, FuncRef),
    exits: &[Exit],
) -> Verdict {
    let exits: Vec<&Exit> = exits.iter().filter(|e| e.func == func).collect();
    let by_cases = || {
        composed(rule, input_of(project, func, rule), &|given| {
            let tensor = &rule.args.params[rule.input].name;
            wrapper_cases(project, bare, files, settings, (func, tensor, given))
        })
    };
    match verdict(project, func, rule, &exits) {
        Verdict::NotDerived => by_cases(),
        // Types without their dims fit a row with dims: what the body does to them decides, if it is derived.
        Verdict::Agrees if lacks_dims(rule, &exits) => match by_cases() {
            Verdict::NotDerived => Verdict::Agrees,
            derived => derived,
        },
        other => other,
    }
}

fn row(rule: &CollectiveRule, function: &Name, verdict: Verdict) -> VerifiedRow {
    let parts: Vec<String> = rule
        .transitions
        .iter()
        .map(|(condition, t)| match condition {
            Some((param, value)) => format!("{t} when {} is {value}", rule.args.params[*param].name),
            None => t.to_string(),
        })
        .collect();
    VerifiedRow { function: function.to_string(), declared: parts.join(", "), verdict }
}

fn verdict(project: &Project, func: FuncRef, rule: &CollectiveRule, exits: &[&Exit]) -> Verdict {
    let input = &rule.args.params[rule.input].name;
    let wanted: Vec<&Transition> = rule
        .transitions
        .iter()
        .filter(|(c, _)| {
            c.as_ref()
                .is_none_or(|(p, _)| project.func(func).params.iter().any(|q| q.name == rule.args.params[*p].name))
        })
        .map(|(_, t)| t)
        .collect();
    let mut seen = vec![false; wanted.len()];
    let mut strange = Vec::new();
    for exit in exits {
        let source = exit.params.iter().find(|(n, _)| n == input).map(|(_, t)| t);
        let result = exit.results.first().and_then(Option::as_ref);
        let Some((source, result)) = source.zip(result) else { continue };
        let Some((from, to)) = sides(source, result) else { continue };
        match wanted.iter().position(|t| fits(&t.source, &from, true) && fits(&t.result, &to, false)) {
            Some(at) => seen[at] = true,
            None => strange.push(format!("{} -> {}", from.notation(), to.notation())),
        }
    }
    strange.sort();
    strange.dedup();
    match (seen.iter().all(|s| *s), strange.is_empty(), seen.iter().any(|s| *s)) {
        (_, false, _) => Verdict::Disagrees(strange.join(", ")),
        (true, true, _) => Verdict::Agrees,
        (false, true, _) => Verdict::NotDerived,
    }
}

/// Whether a row says dims of which the types at the ends of the function say nothing.
fn lacks_dims(rule: &CollectiveRule, exits: &[&Exit]) -> bool {
    let at = |p: &Pattern| matches!(p.shard, Some(DimRef::At(_)));
    let input = &rule.args.params[rule.input].name;
    let open = |t: &LocalType| t.listed().any(|(_, s)| s.set == AxisType::V && s.shard.is_none());
    let of = |exit: &&Exit| {
        let source = exit.params.iter().any(|(n, t)| n == input && open(t));
        source || exit.results.first().and_then(Option::as_ref).is_some_and(open)
    };
    rule.transitions.iter().any(|(_, t)| at(&t.source) || at(&t.result)) && exits.iter().any(of)
}

/// The cases of a function with arguments that are given.
type Cases<'a> = dyn Fn(&[(Name, Const)]) -> Vec<Case> + 'a;

/// The position of the input of a rule among the parameters of a function.
fn input_of(project: &Project, func: FuncRef, rule: &CollectiveRule) -> Option<usize> {
    let name = &rule.args.params[rule.input].name;
    project.func(func).params.iter().position(|p| p.name == *name)
}

/// What a function that applies an autograd function is, with the arguments that the transitions are about.
fn composed(rule: &CollectiveRule, input: Option<usize>, cases: &Cases<'_>) -> Verdict {
    let Some(input) = input else { return Verdict::NotDerived };
    let mut strange = Vec::new();
    for (condition, wanted) in &rule.transitions {
        let given: Vec<(Name, Const)> = match condition {
            None => Vec::new(),
            Some((param, value)) => {
                let Some(value) = constant(value) else { return Verdict::NotDerived };
                vec![(rule.args.params[*param].name.clone(), value)]
            }
        };
        let found = cases(&given);
        // The same value forward and backward is no row between two types.
        let is_idle = |case: &Case| case.principal.is_some() && !case.communicates();
        if !found.is_empty() && found.iter().all(is_idle) && wanted.source.set != wanted.result.set {
            return Verdict::Disagrees("nothing is exchanged in either direction".to_owned());
        }
        let sides: Option<Vec<(AxisState, AxisState)>> = found.iter().map(|c| case_sides(c, input)).collect();
        // What holds whatever the arguments are is what any of the configurations gives.
        let Some((from, to)) = sides.and_then(|s| s.into_iter().reduce(either)) else { return Verdict::NotDerived };
        let lacks_dim = |p: &Pattern, s: &AxisState| {
            matches!(p.shard, Some(DimRef::At(_))) && s.shard.is_none() && s.set == AxisType::V
        };
        if lacks_dim(&wanted.source, &from) || lacks_dim(&wanted.result, &to) {
            return Verdict::NotDerived;
        }
        if !(fits(&wanted.source, &from, true) && fits(&wanted.result, &to, false)) {
            strange.push(format!("{} -> {}", from.notation(), to.notation()));
        }
    }
    strange.dedup();
    match strange.is_empty() {
        true => Verdict::Agrees,
        false => Verdict::Disagrees(strange.join(", ")),
    }
}

/// The types of one argument and the result in a case.
fn case_sides(case: &Case, input: usize) -> Option<(AxisState, AxisState)> {
    let principal =
        case.principal.as_ref().filter(|_| !case.ambiguous && case.communicates() && case.further.is_empty())?;
    let at = case.inputs.iter().position(|i| *i == input)?;
    let state = |(t, dim): (Spmd, Option<usize>)| AxisState {
        shard: dim.and_then(|d| i8::try_from(shown_dim(case, d)).ok()),
        ..AxisState::new(AxisType::from(t))
    };
    let (t, dim) = *principal.sources.get(at)?;
    // Of local mathematics, the dim that is reduced on each rank and then over the ranks.
    let folded = case.folded.iter().find(|(i, _)| *i == input).and_then(|(_, dim)| *dim);
    Some((state((t, dim.or(folded.filter(|_| t == Spmd::Varying)))), state(principal.result)))
}

fn either(a: (AxisState, AxisState), b: (AxisState, AxisState)) -> (AxisState, AxisState) {
    let one = |a: AxisState, b: AxisState| AxisState {
        shard: a.shard.filter(|_| a.shard == b.shard),
        ..AxisState::new(a.set.join(b.set))
    };
    (one(a.0, b.0), one(a.1, b.1))
}

/// An argument as the tables write it.
fn constant(text: &str) -> Option<Const> {
    Some(match text {
        "True" => Const::Bool(true),
        "False" => Const::Bool(false),
        "None" => Const::None,
        _ => match text.parse::<i64>() {
            Ok(n) => Const::Int(n),
            Err(_) => Const::Float(text.parse::<f64>().ok()?.to_bits()),
        },
    })
}

/// The states of argument and result on the axis of the function's group.
fn sides(source: &LocalType, result: &LocalType) -> Option<(AxisState, AxisState)> {
    let (axis, to) = result.listed().find(|(_, s)| !s.set.is_unknown())?;
    let from = source.get(axis).clone();
    (!from.set.is_unknown()).then(|| (from, to.clone()))
}

/// Whether a derived state is that of a pattern. A reduction takes what differs for a sum.
fn fits(pattern: &Pattern, state: &AxisState, source: bool) -> bool {
    let lenient = if source { pattern.set.join(AxisType::V) } else { pattern.set };
    let set = state.set == pattern.set || source && pattern.set.contains(Spmd::Partial) && state.set == lenient;
    let dim = match (&pattern.shard, state.shard) {
        (Some(DimRef::At(n)), Some(d)) => i32::from(d) == *n,
        _ => true,
    };
    set && dim
}
