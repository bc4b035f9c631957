//! Split dims through single operations, against the run time. In: `tests/shard_propagation/records.tsv`, which
//! `scripts/shard_propagation.py` records: an operation, shapes, types on one axis, and the type of the result there, or `error`.
//! Out: a failure where the checker says something else. Saying less is allowed, and counted.
//! Never: programs of more than one operation, see `oracle.rs`. Next: `src/rules/shards/mod.rs`.

mod support;

use spmd_check::rules::builtin;
use spmd_check::source::Severity;
use spmd_check::{Report, Want};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEAD: &str = "import torch
import torch.nn.functional as F
import spmd_types as spmd
from spmd_types.checker import typecheck
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh(\"cpu\", (2, 4), mesh_dim_names=(\"dp\", \"tp\"))
with spmd.set_current_mesh(mesh), typecheck(local=False):
";

/// Programs of so many rows.
const ROWS: usize = 200;

/// Operations of which torch refuses more than it has to; the reasons.
const REFUSED_BY_TORCH: &[(&str, &str)] = &[
    ("torch.tril(", "a batch dim is no part of the triangle"),
    ("torch.triu(", "a batch dim is no part of the triangle"),
    ("F.mse_loss(", "losses have no rule for operands that are broadcast"),
];

struct Row<'a> {
    operation: &'a str,
    shapes: Vec<&'a str>,
    types: Vec<&'a str>,
    result: &'a str,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    text.lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [operation, shapes, types, result] = fields.as_slice() else { panic!("a row has four fields: {line}") };
            Row { operation, shapes: shapes.split(' ').collect(), types: types.split(' ').collect(), result }
        })
        .collect()
}

/// One program for some rows, and the line of each operation.
fn program(rows: &[Row<'_>], first: usize) -> (String, Vec<u32>) {
    let mut text = HEAD.to_string();
    let mut lines = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let mut operation = row.operation.to_string();
        for ((name, shape), ty) in ["x", "y", "z"].iter().zip(&row.shapes).zip(&row.types) {
            let variable = format!("{name}{}", first + i);
            operation = operation.replace(&format!("{{{name}}}"), &variable);
            let types = format!("{{'dp': spmd.R, 'tp': spmd.{ty}}}");
            writeln!(text, "    {variable} = spmd.assert_type(torch.randn({shape}), {types})").expect("a string grows");
        }
        writeln!(text, "    r{} = {operation}", first + i).expect("a string grows");
        lines.push(u32::try_from(text.lines().count()).expect("a program is short"));
    }
    (text, lines)
}

#[test]
fn single_operations_are_as_recorded() {
    let text = support::read("tests/shard_propagation/records.tsv");
    let rows = rows(&text);
    let programs: Vec<(String, Vec<u32>)> =
        rows.chunks(ROWS).enumerate().map(|(i, rows)| program(rows, i * ROWS)).collect();
    let names: Vec<String> = (0..programs.len()).map(|i| format!("p{i}.py")).collect();
    let files = support::files(names.iter().zip(&programs).map(|(name, (text, _))| (name.as_str(), text.as_str())));
    let rules = builtin();
    let Report { diagnostics, types, .. } = support::on_threads(0, || support::run(&rules, &files, Want::Types));
    let mut errors: BTreeMap<(&str, u32), &str> = BTreeMap::new();
    for found in diagnostics.iter().filter(|d| d.severity == Severity::Error) {
        support::assert_title(found);
        errors.insert((&files[found.place.file].path, support::line(&files, found)), &found.message);
    }
    let mut inferred: BTreeMap<(&str, u32), &str> = BTreeMap::new();
    for row in &types {
        if let Some((_, ty)) = row.types.iter().find(|(axis, _)| axis == "tp") {
            inferred.insert((&row.path, row.line), ty);
        }
    }
    let (mut agree, mut silent, mut wrong) = (0, 0, Vec::new());
    for (i, row) in rows.iter().enumerate() {
        let at = (names[i / ROWS].as_str(), programs[i / ROWS].1[i % ROWS]);
        let found = errors.get(&at).map_or_else(|| inferred.get(&at).copied().unwrap_or("V"), |_| "error");
        // A list is not a variable with a type, and plain V says that the dim was not followed.
        match (row.result, found) {
            (recorded, found) if recorded == found => agree += 1,
            (_, "V") => silent += 1,
            ("error", _) if REFUSED_BY_TORCH.iter().any(|(name, _)| row.operation.starts_with(name)) => silent += 1,
            _ => {
                wrong.push(format!("{} {:?} {:?}: {}, found {found}", row.operation, row.shapes, row.types, row.result))
            }
        }
    }
    println!("{} operations: {agree} agree, {silent} not followed", rows.len());
    assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), rows.len(), &wrong[..wrong.len().min(20)]);
    assert!(agree * 100 >= rows.len() * 94, "{agree} of {} agree", rows.len());
}
