//! `spmd-check gradients`. In: options. Out: a row for each kind of parameters at each step of an optimizer: the type of the gradient on
//! each axis, who reduces it and over which axes, the factor that it carries, the configuration. Never: findings. Next: `project.rs`.

use super::args::{GradientsOptions, TypesFormat};
use super::engine::GradientLine;
use super::failure::Failure;
use super::inferred::Inferred;
use super::{Outcome, output};
use crate::types::is_sum;
use serde_json::{Value, json};
use std::io::{self, Write};

/// The columns of the table.
const HEAD: [&str; 6] = ["step", "parameters", "type", "reducer", "factor", "when"];

pub(super) fn run(options: &GradientsOptions) -> Result<Outcome, Failure> {
    let inferred = Inferred::new(&options.input, &options.config, &options.shared)?;
    let report = &inferred.report;
    output::write(|out| match options.output_format {
        TypesFormat::Text => table(&report.gradients, out),
        TypesFormat::Json => array(&report.gradients, out),
    })?;
    if report.gradients.is_empty() && !options.shared.quiet {
        output::say("no step of an optimizer is known to follow a backward pass in these files");
    }
    Ok(inferred.outcome())
}

fn cells(row: &GradientLine) -> [String; 6] {
    let types: Vec<String> = row.types.iter().map(|(axis, letter)| format!("{axis}: {letter}")).collect();
    let reducers: Vec<String> =
        row.reducers.iter().map(|r| format!("{} over {} (line {})", r.kind, r.axes.join(", "), r.line)).collect();
    let factors: Vec<String> = row
        .factors
        .iter()
        .map(
            |(loss, factor)| {
                if loss.is_empty() { factor.clone() } else { format!("{} * {}", closed(factor), closed(loss)) }
            },
        )
        .collect();
    [
        format!("{}:{}", row.path, row.line),
        row.parameters.clone(),
        if types.is_empty() { "-".to_string() } else { types.join(", ") },
        if reducers.is_empty() { "-".to_string() } else { reducers.join("; ") },
        factors.join(" + "),
        if row.when.is_empty() { "always".to_string() } else { row.when.join(", or ") },
    ]
}

/// A factor of a product.
fn closed(text: &str) -> String {
    if is_sum(text) { format!("({text})") } else { text.to_owned() }
}

fn table(rows: &[GradientLine], out: &mut dyn Write) -> io::Result<()> {
    let all: Vec<[String; 6]> = std::iter::once(HEAD.map(str::to_string)).chain(rows.iter().map(cells)).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for row in &all {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn array(rows: &[GradientLine], out: &mut dyn Write) -> io::Result<()> {
    let one = |row: &GradientLine| {
        let types: serde_json::Map<String, Value> =
            row.types.iter().map(|(axis, letter)| (axis.clone(), json!(letter))).collect();
        let reducers: Vec<Value> = row
            .reducers
            .iter()
            .map(|r| json!({ "kind": r.kind, "axes": r.axes, "path": r.path, "line": r.line }))
            .collect();
        let factors: Vec<Value> =
            row.factors.iter().map(|(loss, factor)| json!({ "loss": loss, "factor": factor })).collect();
        json!({
            "path": row.path, "line": row.line, "function": row.function, "parameters": row.parameters,
            "type": types, "reducers": reducers, "factors": factors, "when": row.when,
        })
    };
    let all: Vec<Value> = rows.iter().map(one).collect();
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}
