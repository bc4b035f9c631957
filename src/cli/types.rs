//! `spmd-check types`. In: options. Out: the signature of every function that is known, or the type of every variable.
//! Never: findings. Next: `project.rs`.

use super::args::{Notation, TypesFormat, TypesOptions};
use super::engine::{DerivedLine, DueKind, DueLine, Report, ScaleLine, SignatureLine, TypeRow};
use super::failure::Failure;
use super::inferred::Inferred;
use super::{Outcome, output};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

pub(super) fn run(options: &TypesOptions) -> Result<Outcome, Failure> {
    let inferred = Inferred::new(&options.input, &options.config, &options.shared)?;
    let report = &inferred.report;
    let mut shown = Vec::new();
    write(options, report, &mut shown).map_err(|error| Failure::message(format!("cannot write types: {error}")))?;
    output::write(|out| out.write_all(&shown))?;
    if shown.is_empty() && !options.shared.quiet {
        output::say("nothing here has a known type: `spmd-check check --coverage -v` says why");
    }
    Ok(inferred.outcome())
}

fn write(options: &TypesOptions, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    match options.output_format {
        TypesFormat::Text if options.variables => {
            text(&report.types, options.notation, out)?;
            due(&report.due, out)
        }
        TypesFormat::Text if options.scales => scales(&report.scales, out),
        TypesFormat::Json if options.scales => scales_array(&report.scales, out),
        TypesFormat::Text if options.autograd => reasons(&report.derived, options.shared.verbose, out),
        TypesFormat::Text => {
            functions(&report.derived, options.shared.verbose, out)?;
            lines(&report.signatures, out)?;
            due(&report.due, out)
        }
        TypesFormat::Json if options.autograd => autograd_array(&report.derived, out),
        TypesFormat::Json => array(&report.types, out),
    }
}

/// Variables with a factor: `train.py:12: loss = dp/tokens`.
fn scales(rows: &[ScaleLine], out: &mut dyn Write) -> io::Result<()> {
    for row in rows {
        writeln!(out, "{}:{}: {} {} = {}", row.path, row.line, row.function, row.variable, row.factor)?;
    }
    Ok(())
}

fn scales_array(rows: &[ScaleLine], out: &mut dyn Write) -> io::Result<()> {
    let one = |row: &ScaleLine| {
        json!({
            "path": row.path, "line": row.line, "function": row.function,
            "variable": row.variable, "factor": row.factor,
        })
    };
    let all: Vec<Value> = rows.iter().map(one).collect();
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

fn lines(signatures: &[SignatureLine], out: &mut dyn Write) -> io::Result<()> {
    for found in signatures {
        writeln!(out, "{}:{}: {}", found.path, found.line, found.text)?;
    }
    Ok(())
}

/// Autograd functions, with the type that their own forward and backward imply: a line for each.
fn functions(derived: &[DerivedLine], all: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut told = Vec::new();
    for found in derived.iter().filter(|d| !(d.is_call || d.axes.is_empty() && d.principal.is_none())) {
        let typed =
            (&found.path, found.line, &found.class, &found.axes, &found.principal, all.then_some(&found.signatures));
        if told.contains(&typed) {
            continue;
        }
        told.push(typed);
        let axes = if found.axes.is_empty() { String::new() } else { format!(" on {}", found.axes.join(", ")) };
        let principal = match &found.principal {
            Some(_) if is_identity(found) => "any -> the same".to_owned(),
            Some(principal) => principal.clone(),
            None => untyped(found),
        };
        let when = &found.when_typed;
        let when = if when.is_empty() { String::new() } else { format!("  when {}", when.join(" or ")) };
        let every = if all { format!("  [{}]", found.signatures.join(" ")) } else { String::new() };
        writeln!(out, "{}:{}: {}.apply: {principal}{axes}{when}{every}", found.path, found.line, found.class)?;
    }
    Ok(())
}

/// What is said of a function that is reported, and of one that is not followed.
const WRONG: &str = "has a finding";
const UNKNOWN: &str = "not derived";

/// Why a function has no type, in a few words: `not derived (line 26: narrow)`.
fn untyped(found: &DerivedLine) -> String {
    match found.gaps.first() {
        _ if found.is_wrong => WRONG.to_owned(),
        Some(gap) => match gap.strip_prefix(&format!("{}:", found.path)) {
            Some(here) => format!("{UNKNOWN} (line {here})"),
            None => format!("{UNKNOWN} ({gap})"),
        },
        None => UNKNOWN.to_owned(),
    }
}

/// Whether a function gives a value of any type as it is.
fn is_identity(found: &DerivedLine) -> bool {
    let every = ["R->R", "I->I", "V->V", "P->P"];
    found.axes.is_empty() && every.iter().all(|same| found.signatures.iter().any(|s| s == same))
}

/// Every autograd function: its signatures, or what is not followed.
fn reasons(derived: &[DerivedLine], all: bool, out: &mut dyn Write) -> io::Result<()> {
    for found in derived.iter().filter(|d| !d.is_call) {
        if found.principal.is_some() {
            functions(std::slice::from_ref(found), all, out)?;
            continue;
        }
        let when = if found.when.is_empty() { String::new() } else { format!("  when {}", found.when.join(" or ")) };
        let word = if found.is_wrong { WRONG } else { UNKNOWN };
        writeln!(out, "{}:{}: {}.apply: {word}{when}", found.path, found.line, found.class)?;
        for gap in &found.gaps {
            writeln!(out, "    not followed: {gap}")?;
        }
        if all {
            writeln!(out, "    forward: {}", found.forward)?;
            writeln!(out, "    backward: {}", found.backward.join(" | "))?;
        }
    }
    Ok(())
}

fn autograd_array(derived: &[DerivedLine], out: &mut dyn Write) -> io::Result<()> {
    let objects = derived.iter().filter(|d| !d.is_call).map(|d| {
        json!({
            "path": d.path, "line": d.line, "class": d.class, "axes": d.axes, "signatures": d.signatures,
            "principal": d.principal, "when": d.when, "wrong": d.is_wrong, "not_followed": d.gaps,
            "forward": d.forward, "backward": d.backward,
        })
    });
    objects_to(out, objects)
}

/// Where the parallel modes of the run ask for a collective.
fn due(due: &[DueLine], out: &mut dyn Write) -> io::Result<()> {
    for found in due {
        let (axis, mode) = (&found.axis, &found.mode);
        let what = match found.what {
            DueKind::GatherParameters => {
                format!("all_gather of every parameter over `{axis}`, before it is used, forward and backward")
            }
            DueKind::SplitStates => {
                format!("of what the optimizer keeps for a parameter, each rank of `{axis}` has its part")
            }
            DueKind::SumGradients => format!("all_reduce of the gradient of every parameter over `{axis}`"),
            DueKind::ScatterGradients => format!("reduce_scatter of the gradient of every parameter over `{axis}`"),
        };
        writeln!(out, "{}:{}: due in {mode}: {what}", found.path, found.line)?;
    }
    Ok(())
}

/// A type in a notation.
fn written(types: &[(String, String)], dims: Option<usize>, notation: Notation) -> String {
    let dim =
        |known: &str| known.strip_prefix("S(").and_then(|r| r.strip_suffix(')')).and_then(|d| d.parse::<usize>().ok());
    match notation {
        Notation::Spmd => {
            let parts: Vec<String> = types.iter().map(|(axis, known)| format!("{axis}: {known}")).collect();
            format!("{{{}}}", parts.join(", "))
        }
        Notation::Dtensor => {
            let placement = |known: &str| match (known, dim(known)) {
                ("R" | "I", _) => "Replicate()".to_string(),
                ("P", _) => "Partial()".to_string(),
                (_, Some(dim)) => format!("Shard({dim})"),
                (other, None) => other.to_string(),
            };
            let parts: Vec<String> =
                types.iter().map(|(axis, known)| format!("{axis}: {}", placement(known))).collect();
            format!("({})", parts.join(", "))
        }
        Notation::Xla => {
            let least = types.iter().filter_map(|(_, known)| dim(known)).max().map_or(0, |dim| dim + 1);
            let rank = dims.unwrap_or(least).max(least);
            let entry = |at: usize| {
                let axes: Vec<String> = types
                    .iter()
                    .filter(|(_, known)| dim(known) == Some(at))
                    .map(|(axis, _)| format!("'{axis}'"))
                    .collect();
                match axes.as_slice() {
                    [] => "None".to_string(),
                    [one] => one.clone(),
                    several => format!("({})", several.join(", ")),
                }
            };
            let entries: Vec<String> = (0..rank).map(entry).collect();
            let rest: Vec<String> = types
                .iter()
                .filter(|(_, known)| dim(known).is_none() && !matches!(known.as_str(), "R" | "I"))
                .map(|(axis, known)| format!("{axis}: {known}"))
                .collect();
            let comma = if rank == 1 { "," } else { "" };
            let rest = if rest.is_empty() { String::new() } else { format!(" {{{}}}", rest.join(", ")) };
            format!("({}{comma}){rest}", entries.join(", "))
        }
    }
}

fn text(rows: &[TypeRow], notation: Notation, out: &mut dyn Write) -> io::Result<()> {
    for row in rows {
        let types = written(&row.types, row.rank, notation);
        let when = if row.when.is_empty() { String::new() } else { format!("  when {}", row.when.join(", ")) };
        writeln!(out, "{}:{}: {}: {}: {types}{when}", row.path, row.line, row.function, row.variable)?;
    }
    Ok(())
}

fn array(rows: &[TypeRow], out: &mut dyn Write) -> io::Result<()> {
    let objects = rows.iter().map(|row| {
        let types: Map<String, Value> = row.types.iter().map(|(axis, known)| (axis.clone(), json!(known))).collect();
        json!({
            "path": row.path, "function": row.function, "line": row.line, "variable": row.variable,
            "type": types, "when": row.when,
        })
    });
    objects_to(out, objects)
}

/// An array with an object on each line.
fn objects_to(out: &mut dyn Write, objects: impl Iterator<Item = Value>) -> io::Result<()> {
    let mut any = false;
    for object in objects {
        out.write_all(if any { b",\n" } else { b"[\n" })?;
        any = true;
        serde_json::to_writer(&mut *out, &object)?;
    }
    out.write_all(if any { b"\n]\n" } else { b"[]\n" })
}
