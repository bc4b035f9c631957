//! Inferred signatures in words, a line for each function: `f(x: S(0)@tp) -> R@tp when sequence_parallel, I@tp otherwise`.
//! In: the ends of functions, by path. Out: lines. Never: inference. Next: `when.rs`, which finds the conditions.

use super::when::conditions_of_each;
use crate::infer::autograd::{Case, Signature, shown_dim};
use crate::infer::formula::Facts;
use crate::infer::output::Exit;
use crate::project::{FuncRef, Project};
use crate::rules::{CollectiveRule, Entry, Pattern, RuleBook};
use crate::source::{Files, Name, Place};
use crate::types::{LocalType, Spmd};
use std::collections::BTreeMap;

/// A line of `spmd-check types`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureLine {
    pub path: String,
    pub line: u32,
    pub function: String,
    /// Parameters with their types, and the result with its conditions.
    pub text: String,
    /// The name in its `def`.
    pub place: Option<Place>,
    /// The signature as an annotation comment says it, where all of it is known and nothing declares it yet.
    pub annotation: Option<String>,
}

/// One way through a function: what it says of parameters and result, and in which worlds.
struct Variant {
    params: String,
    result: String,
    worlds: Vec<Facts>,
}

/// The signatures of all functions of which something is known, by file and line.
pub fn signatures(project: &Project, rules: &RuleBook, files: &Files, exits: &[Exit]) -> Vec<SignatureLine> {
    let mut by_func: BTreeMap<FuncRef, Vec<&Exit>> = BTreeMap::new();
    for exit in exits {
        by_func.entry(exit.func).or_default().push(exit);
    }
    let mut out = Vec::new();
    for (module, m) in project.modules.iter_enumerated() {
        if !files[m.file].reported {
            continue;
        }
        for (func, f) in m.ir.funcs.iter_enumerated() {
            let at = FuncRef { module, func };
            let texts = match rules.get(&project.qualified(at)) {
                Some(Entry::Collective(rule)) => by_rule(project, at, rule).into_iter().collect(),
                _ => by_func.get(&at).map_or_else(Vec::new, |exits| lines(project, at, exits)),
            };
            let line = files[m.file].position(f.name_span.start).line;
            let declared = !f.signature.is_empty() || rules.get(&project.qualified(at)).is_some();
            let mut annotation =
                by_func.get(&at).filter(|_| !declared).and_then(|exits| annotation(project, at, exits));
            out.extend(texts.into_iter().map(|text| SignatureLine {
                path: files[m.file].path.clone(),
                line,
                function: project.qualname(at).to_string(),
                text,
                place: Some(Place { file: m.file, span: f.name_span }),
                annotation: annotation.take(),
            }));
        }
    }
    out.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    out
}

fn lines(project: &Project, at: FuncRef, exits: &[&Exit]) -> Vec<String> {
    let mut variants: Vec<Variant> = Vec::new();
    for exit in exits {
        let (params, result) = (params_text(project, at, exit), result_text(exit));
        match variants.iter_mut().find(|v| v.params == params && v.result == result) {
            Some(v) => v.worlds.push(exit.facts.clone()),
            None => variants.push(Variant { params, result, worlds: vec![exit.facts.clone()] }),
        }
    }
    if !exits.iter().any(|e| is_telling(e)) {
        return Vec::new();
    }
    let name = &project.qualname(at);
    let worlds: Vec<&[Facts]> = variants.iter().map(|v| v.worlds.as_slice()).collect();
    let when: Vec<String> = conditions_of_each(&worlds).into_iter().map(|ways| ways.join(" or ")).collect();
    let alike = variants.iter().all(|v| v.params == variants[0].params);
    if alike {
        let mut results: Vec<(String, String)> = variants.iter().map(|v| v.result.clone()).zip(when).collect();
        // What needs the fewest words comes first, and the last one is the rest: what is unknown, if anything is.
        results.sort_by_key(|(r, w)| (r.is_empty(), w.starts_with("not ") || w.is_empty(), w.len(), r.clone()));
        return vec![format!("{name}({}){}", variants[0].params, joined(&results))];
    }
    let mut out: Vec<String> = variants
        .iter()
        .zip(when)
        .map(|(v, when)| {
            let arrow = if v.result.is_empty() { String::new() } else { format!(" -> {}", v.result) };
            let when = if when.is_empty() { String::new() } else { format!("  when {when}") };
            format!("{name}({}){arrow}{when}", v.params)
        })
        .collect();
    out.sort();
    out
}

/// ` -> A when c, B otherwise`
fn joined(results: &[(String, String)]) -> String {
    let shown = |text: &str| if text.is_empty() { "_".to_string() } else { text.to_string() };
    match results {
        [] => String::new(),
        [(result, _)] if result.is_empty() => String::new(),
        [(result, _)] => format!(" -> {result}"),
        // Nothing that has a name tells them apart.
        many if many.iter().all(|(_, when)| when.is_empty()) => {
            let all: Vec<String> = many.iter().map(|(result, _)| shown(result)).collect();
            format!(" -> {}", all.join(" or "))
        }
        many => {
            let last = many.len() - 1;
            let parts: Vec<String> = many
                .iter()
                .enumerate()
                .map(|(i, (result, when))| match (i == last, when.is_empty()) {
                    (true, _) => format!("{} otherwise", shown(result)),
                    (false, true) => shown(result),
                    (false, false) => format!("{} when {when}", shown(result)),
                })
                .collect();
            format!(" -> {}", parts.join(", "))
        }
    }
}

/// `x: {tp: I} -> {tp: R}`: the same at every end of the function, with nothing left open.
fn annotation(project: &Project, at: FuncRef, exits: &[&Exit]) -> Option<String> {
    let mut texts = exits.iter().map(|exit| clause(project, at, exit));
    let first = texts.next()??;
    texts.all(|text| text.as_deref() == Some(first.as_str())).then_some(first)
}

fn clause(project: &Project, at: FuncRef, exit: &Exit) -> Option<String> {
    let mut params = Vec::new();
    for param in &project.func(at).params {
        if let Some((name, ty)) = exit.params.iter().find(|(n, _)| *n == param.name) {
            params.push(format!("{name}: {}", written(ty)?));
        }
    }
    let results: Option<Vec<String>> = exit.results.iter().map(|r| r.as_ref().and_then(written)).collect();
    let results = results.filter(|r| !r.is_empty())?;
    let result = if exit.is_tuple { format!("({})", results.join(", ")) } else { results.concat() };
    let head = if params.is_empty() { String::new() } else { format!("{} ", params.join(", ")) };
    Some(format!("{head}-> {result}"))
}

/// A type in the notation of annotations, if every axis of it is known.
fn written(t: &LocalType) -> Option<String> {
    let plain = |s: &crate::types::AxisState| {
        let said = s.shard.is_none() || s.set == crate::types::AxisType::V;
        (s.set.is_known() && said).then(|| s.notation())
    };
    let axes: Option<Vec<String>> =
        t.listed().map(|(axis, s)| plain(s).map(|text| format!("{}: {text}", axis.name()))).collect();
    let axes = axes?;
    match (axes.is_empty(), t.rest.set.is_known()) {
        (true, true) => plain(&t.rest),
        (true, false) => None,
        // What holds on all other axes has no notation.
        (false, true) => None,
        (false, false) => Some(format!("{{{}}}", axes.join(", "))),
    }
}

fn is_telling(exit: &Exit) -> bool {
    exit.params.iter().any(|(_, t)| !type_text(t).is_empty())
        || exit.results.iter().flatten().any(|t| !type_text(t).is_empty())
}

fn params_text(project: &Project, at: FuncRef, exit: &Exit) -> String {
    let params = project.func(at).params.iter().filter(|p| p.name != "self" && p.name != "cls");
    let texts: Vec<String> = params
        .map(|p| {
            let known = exit.params.iter().find(|(n, _)| *n == p.name).map(|(_, t)| type_text(t)).unwrap_or_default();
            if known.is_empty() { p.name.to_string() } else { format!("{}: {known}", p.name) }
        })
        .collect();
    texts.join(", ")
}

fn result_text(exit: &Exit) -> String {
    let texts: Vec<String> = exit
        .results
        .iter()
        .map(|r| r.as_ref().map(type_text).filter(|t| !t.is_empty()).unwrap_or_else(|| "_".to_string()))
        .collect();
    if texts.iter().all(|t| t == "_") {
        return String::new();
    }
    if exit.is_tuple { format!("({})", texts.join(", ")) } else { texts.concat() }
}

/// `S(0)@tp`, or `{dp: V, tp: S(0)}`.
fn type_text(t: &LocalType) -> String {
    let known: Vec<(String, String)> = t
        .listed()
        .filter(|(_, s)| !s.set.is_unknown() && !s.set.is_empty())
        .map(|(a, s)| (a.shown().to_string(), s.notation()))
        .collect();
    match known.as_slice() {
        [] if t.rest.set.is_known() => t.rest.notation(),
        [] => String::new(),
        [(axis, one)] => format!("{one}@{axis}"),
        many => {
            let parts: Vec<String> = many.iter().map(|(axis, one)| format!("{axis}: {one}")).collect();
            format!("{{{}}}", parts.join(", "))
        }
    }
}

/// The signature that the tables give a function of the project.
fn by_rule(project: &Project, at: FuncRef, rule: &CollectiveRule) -> Option<String> {
    let func = project.func(at);
    let axes: Vec<&str> = rule.default_group.iter().map(Name::as_str).collect();
    let axis = match axes.as_slice() {
        [] => "group".to_string(),
        [one] => (*one).to_string(),
        many => many.join("*"),
    };
    let base = rule.transitions.iter().find(|(c, _)| c.is_none()).map(|(_, t)| t)?;
    let input = &rule.args.params[rule.input].name;
    let params: Vec<String> = func
        .params
        .iter()
        .map(|p| match p.name == *input {
            true => format!("{}: {}@{axis}", p.name, pattern_text(&base.source)),
            false => p.name.to_string(),
        })
        .collect();
    let mut results = Vec::new();
    for (condition, transition) in &rule.transitions {
        let Some((param, value)) = condition else { continue };
        let name = &rule.args.params[*param].name;
        if !func.params.iter().any(|p| p.name == *name) {
            continue;
        }
        let when = match value.as_str() {
            "False" => name.to_string(),
            "True" => format!("not {name}"),
            other => format!("{name} != {other}"),
        };
        results.push((format!("{}@{axis}", pattern_text(&base.result)), when));
        results.push((format!("{}@{axis}", pattern_text(&transition.result)), String::new()));
        break;
    }
    if results.is_empty() {
        results.push((format!("{}@{axis}", pattern_text(&base.result)), String::new()));
    }
    Some(format!("{}({}){}", project.qualname(at), params.join(", "), joined(&results)))
}

fn pattern_text(pattern: &Pattern) -> String {
    use crate::rules::collective::DimRef;
    match &pattern.shard {
        Some(DimRef::At(n)) if pattern.set == crate::types::AxisType::V => format!("S({n})"),
        Some(DimRef::Argument(name)) if pattern.set == crate::types::AxisType::V => format!("S({name})"),
        _ => pattern.set.to_string(),
    }
}

/// `S(0) -> R`, `(I, V) -> V`
pub fn principal_text(case: &Case, signature: &Signature) -> String {
    let side = |(t, dim): (Spmd, Option<usize>)| match dim {
        Some(dim) if t == Spmd::Varying => match case.named.iter().find(|(d, _)| *d == dim) {
            Some((_, name)) => format!("S({})", name.rsplit('.').next().unwrap_or(name)),
            None => format!("S({})", shown_dim(case, dim)),
        },
        _ => t.letter().to_string(),
    };
    let sources: Vec<String> = signature.sources.iter().map(|s| side(*s)).collect();
    let result = side(signature.result);
    let other =
        |at: usize| signature.others.iter().find(|(other, _)| *other == at).map(|(_, t)| t.letter().to_string());
    let result = match case.outputs {
        Some(count) if count > 1 => {
            let of = |at: usize| if at == case.output { Some(result.clone()) } else { other(at) };
            let all: Vec<String> = (0..count).map(|at| of(at).unwrap_or_else(|| "_".into())).collect();
            format!("({})", all.join(", "))
        }
        _ => result,
    };
    match sources.as_slice() {
        [one] => format!("{one} -> {result}"),
        many => format!("({}) -> {result}", many.join(", ")),
    }
}
