//! `spmd-check report`. In: options. Out: one HTML page with types, collectives, findings and coverage. Never: a judgement of its own.
//! Next: `render/report.rs`.

use super::args::ReportOptions;
use super::failure::Failure;
use super::inferred::Inferred;
use super::write::put;
use super::{Outcome, output};
use crate::fix::at_levels;
use crate::render::report::{CollectiveLine, Page, write};
use crate::rules::{CollectiveRule, Form, Pattern, RuleBook, Transition};
use crate::source::Files;
use crate::types::{AxisType, Spmd};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn run(options: &ReportOptions) -> Result<Outcome, Failure> {
    let inferred = Inferred::new(&options.input, &options.config, &options.shared)?;
    let Inferred { config, rules, project, report } = &inferred;
    let findings = at_levels(config, &project.files, report.diagnostics.clone());
    let collectives = collectives(rules, &project.files);
    let page = Page { files: &project.files, report, findings: &findings, collectives: &collectives };
    if options.output == Path::new("-") {
        output::write(|out| write(&page, out))?;
    } else {
        let shown = options.output.to_string_lossy();
        let mut text = Vec::new();
        let written = write(&page, &mut text).and_then(|()| put(&options.output, &[text.as_slice()]));
        written.map_err(|error| Failure::message(format!("cannot write `{shown}`: {error}")))?;
        if !options.shared.quiet {
            output::say(&format!("wrote `{shown}` with {}", output::plural(findings.len(), "finding")));
        }
    }
    Ok(inferred.outcome())
}

/// The calls of functions that the tables know, by the last part of their names.
fn collectives(rules: &RuleBook, files: &Files) -> Vec<CollectiveLine> {
    let mut known: BTreeMap<&str, &CollectiveRule> = BTreeMap::new();
    for rule in rules.collectives().filter(|rule| rule.form == Form::Result && rule.repair.is_some()) {
        let name = rule.name.strip_suffix(".apply").unwrap_or(&rule.name);
        known.entry(name.rsplit('.').next().unwrap_or(name)).or_insert(rule);
    }
    let mut out = Vec::new();
    for (_, file) in files.iter().filter(|(_, file)| file.reported) {
        for (index, line) in file.text.lines().enumerate() {
            let head = line.trim_start();
            if head.starts_with(['#', '"', '\'']) || head.starts_with("def ") {
                continue;
            }
            let code = line.split('#').next().unwrap_or(line);
            for (at, _) in code.match_indices('(') {
                let callee = code[..at].strip_suffix(".apply").unwrap_or(&code[..at]);
                let name = callee.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(callee);
                if let Some(rule) = known.get(name) {
                    let (path, line) = (file.path.clone(), u32::try_from(index + 1).unwrap_or(0));
                    out.push(CollectiveLine { path, line, name: name.to_owned(), pairs: pairs(rule) });
                }
            }
        }
    }
    out
}

/// What a collective does forward and backward, for each of its transitions.
fn pairs(rule: &CollectiveRule) -> Vec<(String, String, String)> {
    let mut out: Vec<(String, String, String)> = Vec::new();
    let mut transitions: Vec<&(Option<_>, Transition)> = rule.transitions.iter().collect();
    // What holds without conditions comes last in the tables, and first for a reader.
    transitions.sort_by_key(|(condition, _)| condition.is_some());
    for (condition, transition) in transitions {
        let (source, result) = (&transition.source, &transition.result);
        let forward = format!("{}: {} \u{2192} {}", rule.op, side(source), side(result));
        let backward = if rule.differentiable { backward(&rule.op, source.set, result.set) } else { "none" };
        let given = condition.as_ref().map_or(String::new(), |(at, value)| {
            rule.args.params.get(*at).map_or(String::new(), |param| format!("{} is {value}", param.name))
        });
        let row = (forward, backward.to_owned(), given);
        if !out.contains(&row) {
            out.push(row);
        }
    }
    out
}

fn side(pattern: &Pattern) -> String {
    use crate::rules::collective::DimRef;
    match &pattern.shard {
        Some(DimRef::At(dim)) if pattern.set == AxisType::V => format!("S({dim})"),
        Some(DimRef::Argument(name)) if pattern.set == AxisType::V => format!("S({name})"),
        _ => pattern.set.to_string(),
    }
}

/// What the gradient goes through, by the operation and its types.
fn backward(op: &str, source: AxisType, result: AxisType) -> &'static str {
    let to = result.known();
    match (op, source.known(), to) {
        ("all_reduce", _, Some(Spmd::Invariant)) => "identity",
        ("all_reduce", _, Some(Spmd::Replicate)) => "all_reduce",
        ("all_gather", _, Some(Spmd::Invariant)) => "split",
        ("all_gather", _, Some(Spmd::Replicate)) => "reduce_scatter",
        ("reduce_scatter", _, _) => "all_gather",
        ("all_to_all", _, _) => "all_to_all back",
        (_, Some(Spmd::Invariant), Some(Spmd::Replicate)) => "all_reduce",
        (_, Some(Spmd::Invariant), Some(Spmd::Varying)) => "all_gather",
        (_, Some(Spmd::Replicate), Some(Spmd::Varying | Spmd::Partial)) => "the gradient of the part",
        _ => "as its table says",
    }
}
