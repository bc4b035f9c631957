//! Factors of variables and of gradients as lines to be shown. In: the output of the inference. Out: [`ScaleLine`], [`GradientLine`].
//! Never: a verdict. Next: `cli/gradients.rs`, `cli/types.rs`.

use crate::diagnostics::conditions;
use crate::infer::Output;
use crate::infer::formula::{Atom, Facts};
use crate::infer::scale::table::GradientRow;
use crate::infer::scale::value::What;
use crate::project::{FuncRef, Project};
use crate::source::{Files, Place};
use crate::types::AxisSet;
use std::collections::BTreeMap;

/// The factor of a variable after a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScaleLine {
    pub path: String,
    pub line: u32,
    pub function: String,
    pub variable: String,
    pub factor: String,
}

/// Who reduces a gradient, and over which axes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReducerLine {
    /// `sum`, `mean` or `wrapper`.
    pub kind: &'static str,
    pub axes: Vec<String>,
    pub path: String,
    pub line: u32,
}

/// The gradients of some parameters where an optimizer takes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GradientLine {
    pub path: String,
    pub line: u32,
    /// The one in which the step stands.
    pub function: String,
    pub parameters: String,
    /// Axis and type.
    pub types: Vec<(String, String)>,
    pub reducers: Vec<ReducerLine>,
    /// A loss, and the factor before its sum over the tokens of one rank.
    pub factors: Vec<(String, String)>,
    /// The configurations in which it is so, one for each way; empty if it always is.
    pub when: Vec<String>,
}

pub(super) fn scales(project: &Project, files: &Files, output: &Output) -> Vec<ScaleLine> {
    let rows = output.factors.rows.iter().filter(|row| files[row.place.file].reported);
    let mut lines: Vec<ScaleLine> = rows
        .map(|row| ScaleLine {
            path: files[row.place.file].path.clone(),
            line: files[row.place.file].position(row.place.span.start).line,
            function: project.qualname(row.func).to_string(),
            variable: row.variable.to_string(),
            factor: row.factor.to_string(),
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

pub(super) fn gradients(project: &Project, files: &Files, output: &Output) -> Vec<GradientLine> {
    let names = |set: &AxisSet| set.iter().map(|a| a.shown().to_string()).collect::<Vec<_>>();
    let mut lines = Vec::new();
    for (row, when) in distinct(&output.factors.gradients, files) {
        let reducers = row.reducers.iter().filter_map(|(what, place)| {
            let (kind, axes) = match what {
                What::Summed(axes) => ("sum", axes),
                What::Averaged(axes) => ("mean", axes),
                What::Wrapped(axes) => ("wrapper", axes),
                _ => return None,
            };
            let line = files[place.file].position(place.span.start).line;
            Some(ReducerLine { kind, axes: names(axes), path: files[place.file].path.clone(), line })
        });
        lines.push(GradientLine {
            path: files[row.place.file].path.clone(),
            line: files[row.place.file].position(row.place.span.start).line,
            function: project.function_at(row.place).map_or_else(String::new, |at| project.qualname(at).to_string()),
            parameters: row.parameters.split('@').next().unwrap_or_default().to_string(),
            types: row.types.iter().map(|(axis, letter)| (axis.to_string(), (*letter).to_string())).collect(),
            reducers: reducers.collect(),
            factors: row.factors.iter().map(|(loss, factor)| (loss.to_string(), factor.to_string())).collect(),
            when,
        });
    }
    lines.sort();
    lines.dedup();
    lines
}

/// What is so on several paths to a step once, with the conditions that tell these paths from the others to that step.
fn distinct<'r>(rows: &'r [GradientRow], files: &Files) -> Vec<(&'r GradientRow, Vec<String>)> {
    let facts = |row: &GradientRow| {
        let all = row.when.iter();
        all.fold(Facts::default(), |facts, (name, value)| facts.with(Atom::True(name.clone()), *value))
    };
    // Conditions are written as one root writes them.
    let mut steps: BTreeMap<(Place, FuncRef), Vec<(&GradientRow, Facts)>> = BTreeMap::new();
    for row in rows.iter().filter(|row| files[row.place.file].reported) {
        steps.entry((row.place, row.func)).or_default().push((row, facts(row)));
    }
    let mut out = Vec::new();
    for step in steps.values() {
        let mut open: Vec<&(&GradientRow, Facts)> = step.iter().collect();
        while let Some((first, _)) = open.first() {
            let (same, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|(row, _)| row.is_like(first));
            let found: Vec<Facts> = same.iter().map(|(_, facts)| facts.clone()).collect();
            let silent: Vec<Facts> =
                step.iter().map(|(_, facts)| facts).filter(|facts| !found.contains(facts)).cloned().collect();
            ways(&mut out, first, conditions(&found, &silent));
            open = others;
        }
    }
    out
}

/// Notes what is so at a step: what several roots lead to once, with the ways of each; always, where that is so of one of them.
fn ways<'r>(out: &mut Vec<(&'r GradientRow, Vec<String>)>, row: &'r GradientRow, when: Vec<String>) {
    match out.iter_mut().find(|(known, _)| known.is_like(row)) {
        Some((_, known)) if known.is_empty() || when.is_empty() => known.clear(),
        Some((_, known)) => {
            known.extend(when);
            known.sort();
            known.dedup();
        }
        None => out.push((row, when)),
    }
}
