//! The checker as one pure function. In: configuration, rules, files in memory. Out: [`Report`]. Never: I/O, or an order that depends
//! on threads. Next: `infer/root.rs`.

mod derived;
mod factors;
pub mod layout;
pub mod session;
pub mod verify;

pub use derived::DerivedLine;
pub use factors::{GradientLine, ScaleLine};

use crate::config::{Config, FlagValue};
use crate::diagnostics::{self, SignatureLine, conditions, describe, describe_syntax, suppress};
use crate::infer::DueKind;
use crate::infer::digest::{Digest, Digests, Words};
use crate::infer::finding::Finding;
use crate::infer::formula::Facts;
use crate::infer::output::{Reason as Unknown, Site};
use crate::infer::practice::looks_at;
use crate::infer::{Asked, Output, Row, Settings, Taken, infer};
use crate::ir::{Const, FileIr};
use crate::project::{FuncRef, Project};
use crate::rules::RuleBook;
use crate::source::{Diagnostic, FileId, Files, Idx, Name, Place};
use crate::syntax::{self, Parsed, SyntaxProblem};
use crate::types::mode::mode;
use crate::types::{Axis, Mesh};
use rayon::prelude::*;
use std::sync::Arc;

/// What the caller needs; types of variables cost memory that findings do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Findings,
    Types,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Sorted; suppressed ones removed; of reported files only.
    pub diagnostics: Vec<Diagnostic>,
    /// A label and a count.
    pub coverage: Vec<(String, u64)>,
    /// Collective calls and declared shardings of which something is not known: path, line, what.
    pub unknown_sites: Vec<(String, u32, &'static str)>,
    pub types: Vec<TypeRow>,
    /// Autograd functions with every signature that their source implies.
    pub derived: Vec<DerivedLine>,
    /// Inferred signatures, a line for each function, or for each configuration.
    pub signatures: Vec<SignatureLine>,
    /// Collectives that parallel modes ask for.
    pub due: Vec<DueLine>,
    /// Factors of variables.
    pub scales: Vec<ScaleLine>,
    /// Gradients of parameters where an optimizer takes them.
    pub gradients: Vec<GradientLine>,
}

/// A collective that a parallel mode asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueLine {
    pub path: String,
    pub line: u32,
    pub axis: String,
    pub mode: String,
    pub what: DueKind,
}

/// The type of a variable after a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeRow {
    pub path: String,
    pub function: String,
    pub line: u32,
    pub variable: String,
    /// Axis and type; unknown axes are left out.
    pub types: Vec<(String, String)>,
    /// The number of dims, if it is known.
    pub rank: Option<usize>,
    pub when: Vec<String>,
}

/// Checks a project.
pub fn check(config: &Config, rules: &RuleBook, files: &Files, want: Want) -> Report {
    checked(config, rules, files, want, want == Want::Findings && files.bytes() >= LARGE)
}

/// The same. `sparing`: functions that nothing is likely to look at are lowered again if something does, for less memory and the same report.
pub fn checked(config: &Config, rules: &RuleBook, files: &Files, want: Want, sparing: bool) -> Report {
    let ids: Vec<FileId> = files.ids().collect();
    let words = Words::new(rules);
    let asked = Asked::new(rules, files.len(), files.bytes(), None);
    let mut problems = Vec::with_capacity(ids.len());
    let mut digests = Vec::with_capacity(ids.len());
    let mut irs: Vec<(FileId, FileIr)> = Vec::with_capacity(ids.len());
    for (id, (parsed, digest)) in ids.iter().zip(parsed(files, &ids, rules, (&words, &asked), sparing)) {
        problems.push(parsed.problems);
        digests.push(digest);
        irs.push((*id, parsed.ir));
    }
    let roots: Vec<String> = config.src.iter().map(|p| shown_root(config, p)).collect();
    let project = Project::new(files, irs, &roots);
    let mut settings = settings(config, want);
    let taken = Taken { digests: Digests::taken(words, digests), asked };
    let output = infer(&project, rules, files, &mut settings, &taken, None);
    let words = |finding: &Finding| describe(files, finding);
    let report = Report {
        diagnostics: diagnostics_of(config, (&project, files), &problems, &output, words),
        ..Report::default()
    };
    let report = match want {
        Want::Findings => Report { due: due(files, &output), ..report },
        Want::Types => Report {
            coverage: coverage(&project, &output, files),
            unknown_sites: unknown_sites(&output, files),
            types: rows(&project, files, &output),
            derived: derived::derived(&project, files, &output),
            signatures: diagnostics::signature::signatures(&project, rules, files, &output.exits),
            due: due(files, &output),
            scales: factors::scales(&project, files, &output),
            gradients: factors::gradients(&project, files, &output),
            ..report
        },
    };
    // Nobody waits for the memory of the run.
    rayon::spawn(move || drop((project, output, settings, taken)));
    report
}

/// Bytes of source from which functions are not kept that are unlikely to be looked at again: 52 MiB take 365 MB with all of them, of 400.
const LARGE: usize = 56 << 20;

/// Every file, parsed and asked what is asked of all: the longest first, so that no thread is left alone with one at the end.
fn parsed(
    files: &Files,
    ids: &[FileId],
    rules: &RuleBook,
    (words, asked): (&Words, &Asked),
    sparing: bool,
) -> Vec<(Parsed, Digest)> {
    let mut order: Vec<FileId> = ids.to_vec();
    order.sort_by_key(|id| std::cmp::Reverse(files[*id].text.len()));
    let parse = |id: &FileId| {
        let text = &files[*id].text;
        let mut parsed = syntax::parse(text);
        let digest = Digest::new(&parsed.ir, words);
        if sparing && parsed.problems.is_empty() {
            let shown = asked.shown_in(id.index(), text);
            parsed.ir.set_aside(text, syntax::function, |id, func| {
                let gist = &digest.funcs[id.index()];
                !gist.tells && !looks_at(func, gist, shown, rules)
            });
        }
        (*id, (parsed, digest))
    };
    let mut parsed: Vec<(FileId, (Parsed, Digest))> = order.par_iter().with_max_len(1).map(parse).collect();
    parsed.sort_unstable_by_key(|(id, _)| *id);
    parsed.into_iter().map(|(_, parsed)| parsed).collect()
}

/// Everything wrong with the reported files: in words, in order, without what is suppressed.
fn diagnostics_of(
    config: &Config,
    (project, files): (&Project, &Files),
    problems: &[Vec<SyntaxProblem>],
    output: &Output,
    mut words: impl FnMut(&Finding) -> Diagnostic,
) -> Vec<Diagnostic> {
    let ids: Vec<FileId> = files.ids().collect();
    let mut found: Vec<Vec<Diagnostic>> = vec![Vec::new(); ids.len()];
    for ((id, problems), found) in ids.iter().zip(problems).zip(&mut found) {
        found.extend(files[*id].unreadable.iter().map(|why| diagnostics::unreadable(*id, why)));
        found.extend(problems.iter().map(|p| describe_syntax(*id, p)));
    }
    for finding in output.findings.iter().filter(|f| finding_is_reported(files, f.place.file)) {
        let diagnostic = words(finding);
        if is_of_one_rank(config, &diagnostic.message) {
            continue;
        }
        found[file_index(&ids, diagnostic.place.file)].push(diagnostic);
    }
    for root in &output.failed {
        let func = project.func(*root);
        let place = Place { file: project.file(root.module), span: func.name_span };
        found[file_index(&ids, place.file)].push(diagnostics::internal_error(place, &project.qualname(*root)));
    }
    let mut all = Vec::new();
    for (module, found) in project.modules.iter().zip(found) {
        if files[module.file].reported {
            all.extend(suppress(files, module.file, &module.ir.suppressions, found));
        }
    }
    diagnostics::sort(&mut all);
    all
}

/// Whether a title names axes, as every title does that is about some, and the configuration gives each of them one rank.
fn is_of_one_rank(config: &Config, title: &str) -> bool {
    let named = |name: &str| config.mesh.iter().find(|axis| axis.name == name);
    let mut axes = title.split('`').skip(1).step_by(2).filter_map(named).peekable();
    axes.peek().is_some() && axes.all(|axis| axis.size == Some(1))
}

fn due(files: &Files, output: &Output) -> Vec<DueLine> {
    let mut lines: Vec<DueLine> = output
        .due
        .iter()
        .filter(|due| files[due.place.file].reported)
        .map(|due| DueLine {
            path: files[due.place.file].path.clone(),
            line: files[due.place.file].position(due.place.span.start).line,
            axis: due.axis.to_string(),
            mode: due.mode.to_string(),
            what: due.what,
        })
        .collect();
    lines.sort();
    lines
}

fn finding_is_reported(files: &Files, file: FileId) -> bool {
    files[file].reported
}

fn file_index(ids: &[FileId], id: FileId) -> usize {
    ids.binary_search(&id).expect("every file of a finding is a file of the run")
}

/// A source root as files show their paths.
fn shown_root(config: &Config, root: &std::path::Path) -> String {
    let shown = root.strip_prefix(&config.cwd).unwrap_or(root).to_string_lossy().replace('\\', "/");
    if shown.is_empty() || shown.ends_with('/') { shown } else { format!("{shown}/") }
}

/// What the configuration fixes for the inference.
fn settings(config: &Config, want: Want) -> Settings {
    let mut out = Settings::default();
    out.wants_types = want == Want::Types;
    out.mean_over_tokens = config.contracts.mean_over_tokens;
    out.gradient_mean =
        config.contracts.gradient_mean.as_ref().map(|axes| axes.iter().map(|a| Axis::new(a.as_str())).collect());
    if !config.mesh.is_empty() {
        let axes = config.mesh.iter().map(|a| (Axis::new(a.name.as_str()), a.size)).collect();
        out.mesh = Some(Arc::new(Mesh::new(axes)));
    }
    for group in &config.groups {
        let expression: String = group.expression.chars().filter(|c| !c.is_whitespace()).collect();
        out.groups.push((Name::from(expression), group.axes.iter().map(|a| Name::from(a.as_str())).collect()));
    }
    for flag in &config.flags {
        let name = Name::from(flag.name.as_str());
        let mut values: Vec<Const> = flag
            .values
            .iter()
            .map(|value| match value {
                FlagValue::Bool(b) => Const::Bool(*b),
                FlagValue::Int(n) => Const::Int(*n),
                FlagValue::Str(s) => Const::Str(Name::from(s.as_str())),
            })
            .collect();
        match values.len() {
            1 => out.flags.extend(values.pop().map(|value| (name, value))),
            _ => out.choices.push((name, values)),
        }
    }
    out.modes = config.mode.names.iter().filter_map(|name| mode(name)).collect();
    out.global = config.mode.global;
    out.target_torch = config.target_torch.as_ref().map(|v| (v.major, v.minor));
    for default in &config.defaults {
        // The configuration was validated with the same parser.
        if let Ok(ty) = syntax::parse_type_expr(&default.text) {
            out.defaults.push((Name::from(default.name.as_str()), ty));
        }
    }
    out
}

/// Counts of what was typed and what was not, and why.
fn coverage(project: &Project, output: &Output, files: &Files) -> Vec<(String, u64)> {
    let shown = |place: &&Place| finding_is_reported(files, place.file);
    let sites: Vec<Site> =
        output.coverage.collectives.iter().filter(|(p, _)| shown(p)).map(|(_, site)| *site).collect();
    let count = |wanted: Site| sites.iter().filter(|s| **s == wanted).count() as u64;
    let mut rows = vec![
        ("collective calls".to_string(), sites.len() as u64),
        ("collective calls with a known source or result type".to_string(), count(Site::Typed)),
    ];
    for site in [Site::NotReached, Site::NoGroup, Site::NoValue] {
        rows.push((format!("collective calls: {}", site_words(site)), count(site)));
    }
    let declared = output.coverage.declarations.iter().filter(|(p, _)| shown(p));
    let read = declared.clone().filter(|(_, read)| **read).count() as u64;
    let all = declared.count() as u64;
    if all > 0 {
        rows.push(("sharding declarations".to_string(), all));
        rows.push(("sharding declarations that are read".to_string(), read));
    }
    let (params, returns) = signatures(project, output, files);
    rows.push(("parameters of analysed functions with a known type".to_string(), params.0));
    rows.push(("parameters of analysed functions without".to_string(), params.1));
    rows.push(("returns of analysed functions with a known type".to_string(), returns.0));
    rows.push(("returns of analysed functions without".to_string(), returns.1));
    let mut reasons: Vec<(String, u64)> = Vec::new();
    for ((reason, what), n) in &output.coverage.reasons {
        let text = reason_words(*reason, what);
        match reasons.iter_mut().find(|(t, _)| *t == text) {
            Some((_, count)) => *count += n,
            None => reasons.push((text, *n)),
        }
    }
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    rows.extend(reasons);
    rows
}

fn site_words(site: Site) -> &'static str {
    match site {
        Site::NotReached => "not reached",
        Site::NoGroup => "the group is not resolved",
        Site::NoValue => "the value is not followed",
        Site::Typed => "typed",
    }
}

fn unknown_words(site: Site) -> &'static str {
    match site {
        Site::NotReached => "collective call: not reached",
        Site::NoGroup => "collective call: the group is not resolved",
        Site::NoValue => "collective call: the value is not followed",
        Site::Typed => "collective call: typed",
    }
}

fn reason_words(reason: Unknown, what: &str) -> String {
    match reason {
        Unknown::NoRule => format!("operations without a rule: {what}"),
        Unknown::UnresolvedCall => "calls that lead to nothing known".to_string(),
        Unknown::UnknownOperand => format!("collectives on values that are not followed: {what}"),
        Unknown::UnresolvedGroup => "collectives whose group is not resolved".to_string(),
        Unknown::Budget => format!("precision given up: {what}"),
        Unknown::Opaque => format!("not understood: {what}"),
    }
}

/// Parameters and returns of the functions that were executed: with a known type, and without.
fn signatures(project: &Project, output: &Output, files: &Files) -> ((u64, u64), (u64, u64)) {
    let known: rustc_hash::FxHashSet<(FuncRef, &str)> = output
        .rows
        .iter()
        .filter(|r| r.ty.local.listed().any(|(_, s)| s.set.is_known()) || r.ty.local.rest.set.is_known())
        .map(|r| (r.func, r.variable.as_str()))
        .collect();
    let (mut params, mut returns) = ((0, 0), (0, 0));
    for func in &output.executed {
        if !finding_is_reported(files, project.file(func.module)) {
            continue;
        }
        let f = project.func(*func);
        for param in f.params.iter().filter(|p| p.name != "self" && p.name != "cls") {
            match known.contains(&(*func, param.name.as_str())) {
                true => params.0 += 1,
                false => params.1 += 1,
            }
        }
        match known.contains(&(*func, "return")) {
            true => returns.0 += 1,
            false => returns.1 += 1,
        }
    }
    (params, returns)
}

/// Collective calls and declared shardings of which something is not known: path, line, what.
fn unknown_sites(output: &Output, files: &Files) -> Vec<(String, u32, &'static str)> {
    let sites = output.coverage.collectives.iter().filter(|(p, s)| **s != Site::Typed && files[p.file].reported);
    let unread = output.coverage.declarations.iter().filter(|(p, read)| !**read && files[p.file].reported);
    sites
        .map(|(p, s)| (p, unknown_words(*s)))
        .chain(unread.map(|(p, _)| (p, "sharding declaration: a layout of it is not known")))
        .map(|(p, words)| (files[p.file].path.clone(), files[p.file].position(p.span.start).line, words))
        .collect()
}

/// The rows of `types`, by file, function and line.
fn rows(project: &Project, files: &Files, output: &Output) -> Vec<TypeRow> {
    let mut rows: Vec<(FileId, u32, FuncRef, TypeRow)> = Vec::new();
    for row in &output.rows {
        let file = row.place.file;
        if !files[file].reported {
            continue;
        }
        let types = shown_types(row);
        if types.is_empty() {
            continue;
        }
        let line = files[file].position(row.place.span.start).line;
        let function = project.qualname(row.func).to_string();
        let when = conditions(std::slice::from_ref(&row.facts), &[Facts::default()]);
        let shown = TypeRow {
            path: files[file].path.clone(),
            function,
            line,
            variable: row.variable.to_string(),
            types,
            rank: row.ty.rank(),
            when: if row.facts.is_empty() { Vec::new() } else { when },
        };
        rows.push((file, line, row.func, shown));
    }
    rows.sort_by(|a, b| (a.0, a.2, a.1, &a.3.variable).cmp(&(b.0, b.2, b.1, &b.3.variable)));
    let mut out: Vec<TypeRow> = Vec::new();
    for (_, _, _, row) in rows {
        // Several steps of one line: the last one is what holds after it.
        match out.last_mut() {
            Some(last)
                if (&last.path, &last.function, last.line, &last.variable)
                    == (&row.path, &row.function, row.line, &row.variable) =>
            {
                *last = row
            }
            _ => out.push(row),
        }
    }
    out
}

fn shown_types(row: &Row) -> Vec<(String, String)> {
    row.ty
        .local
        .listed()
        .filter(|(_, s)| !s.set.is_unknown() && !s.set.is_empty())
        .map(|(a, s)| (a.shown().to_string(), s.notation()))
        .collect()
}
