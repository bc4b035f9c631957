//! The types that autograd functions have by their own source, as lines. In: what inference derived. Out: a line for each configuration.
//! Never: inference, and words beyond types and conditions. Next: `cli/types.rs`.

use crate::diagnostics;
use crate::infer::Output;
use crate::infer::autograd::{Case, Signature};
use crate::infer::formula::Facts;
use crate::project::Project;
use crate::source::{Files, Place};

/// What an autograd function is, by its own source, at its definition or at a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DerivedLine {
    pub path: String,
    pub line: u32,
    pub class: String,
    /// Whether this is a call of `apply`, with the arguments given there.
    pub is_call: bool,
    pub axes: Vec<String>,
    /// `I->R`, sorted; of several arguments `I,V->V`.
    pub signatures: Vec<String>,
    /// The one that tells most, with the dims that are split.
    pub principal: Option<String>,
    pub when: Vec<String>,
    /// The configurations of all cases that have this type on these axes.
    pub when_typed: Vec<String>,
    /// What the bodies do, as a chain of steps.
    pub forward: String,
    pub backward: Vec<String>,
    /// Whether something was found wrong with it.
    pub is_wrong: bool,
    /// What is not followed, with its place.
    pub gaps: Vec<String>,
}

/// Derived functions, by file and line.
pub(super) fn derived(project: &Project, files: &Files, output: &Output) -> Vec<DerivedLine> {
    let mut out = Vec::new();
    for row in output.derived.iter().filter(|row| files[row.place.file].reported) {
        let definition = row.place.file == project.file(row.class.module)
            && project.modules[row.class.module]
                .ir
                .funcs
                .iter()
                .any(|f| f.name == "forward" && f.name_span == row.place.span);
        let at =
            |place: &Place| format!("{}:{}", files[place.file].path, files[place.file].position(place.span.start).line);
        let empty = DerivedLine {
            path: files[row.place.file].path.clone(),
            line: files[row.place.file].position(row.place.span.start).line,
            class: project.class(row.class).name.to_string(),
            is_call: !definition,
            gaps: row.gaps.iter().map(|g| format!("{}: {}", at(&g.place), g.what)).collect(),
            ..DerivedLine::default()
        };
        if row.cases.is_empty() {
            out.push(empty.clone());
        }
        out.extend(derived_cases(&row.cases, &empty));
    }
    out.sort_by(|a, b| (&a.path, a.line, &a.class, &a.when).cmp(&(&b.path, b.line, &b.class, &b.when)));
    out.dedup();
    out
}

/// Lines for each configuration of a derived function.
fn derived_cases(cases: &[Case], empty: &DerivedLine) -> Vec<DerivedLine> {
    let worlds: Vec<&[Facts]> = cases.iter().map(|case| std::slice::from_ref(&case.facts)).collect();
    let of_case = |(case, when): (&Case, Vec<String>)| {
        let line = DerivedLine { when, ..derived_line(empty, case) };
        let further = case.further.iter().map(|f| DerivedLine {
            axes: f.axes.iter().map(|a| a.shown().to_string()).collect(),
            signatures: signature_texts(&f.legal),
            principal: Some(diagnostics::signature::principal_text(case, &f.principal)),
            ..line.clone()
        });
        further.chain([line.clone()]).collect::<Vec<_>>()
    };
    let mut lines: Vec<Vec<DerivedLine>> =
        cases.iter().zip(diagnostics::conditions_of_each(&worlds)).map(of_case).collect();
    let typed = |line: &DerivedLine| (line.axes.clone(), line.principal.clone());
    let types: Vec<Vec<_>> = lines.iter().map(|lines| lines.iter().map(typed).collect()).collect();
    // Most configurations have a type that others have too.
    let mut known: Vec<(_, Vec<String>)> = Vec::new();
    for line in lines.iter_mut().flatten() {
        let key = typed(line);
        if let Some((_, when)) = known.iter().find(|(of, _)| *of == key) {
            line.when_typed.clone_from(when);
            continue;
        }
        let with = |has: bool| -> Vec<Facts> {
            cases.iter().zip(&types).filter(|(_, of)| of.contains(&key) == has).map(|(c, _)| c.facts.clone()).collect()
        };
        // One that stands alone holds beside ways that are not followed.
        let others = if cases.len() == 1 { vec![Facts::default()] } else { with(false) };
        line.when_typed = diagnostics::conditions_of(&with(true), &others);
        known.push((key, line.when_typed.clone()));
    }
    lines.concat()
}

/// One configuration of a derived function.
fn derived_line(empty: &DerivedLine, case: &Case) -> DerivedLine {
    DerivedLine {
        axes: case.axes.iter().map(|a| a.shown().to_string()).collect(),
        signatures: signature_texts(&case.legal),
        principal: case.principal.as_ref().map(|p| diagnostics::signature::principal_text(case, p)),
        forward: diagnostics::chain(&case.forward),
        backward: case.backward.iter().map(|t| diagnostics::chain(t)).collect(),
        is_wrong: case.trouble.is_some(),
        ..empty.clone()
    }
}

fn signature_texts(legal: &[Signature]) -> Vec<String> {
    let mut out: Vec<String> = legal
        .iter()
        .map(|s| {
            let sources: Vec<String> = s.sources.iter().map(|(t, _)| t.letter().to_string()).collect();
            format!("{}->{}", sources.join(","), s.result.0.letter())
        })
        .collect();
    out.sort();
    out
}
