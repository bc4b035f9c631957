//! Distributed tensors through single statements, against the run time. In: `tests/dtensor/records.tsv`, which
//! `scripts/dtensor_cases.py` records: a statement, its arguments, and the placements of the result, `*` where a pending reduction was
//! completed on the way, or the error. Out: a failure where the checker says something else. Saying less is allowed, and counted.
//! Never: programs of more than one statement, see `tests/spec/dtensor.md`. Next: `src/infer/dtensor/mod.rs`.

mod support;

use spmd_check::rules::builtin;
use spmd_check::source::Severity;
use spmd_check::{Report, Want};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const HEAD: &str = "import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
R, S, P = Replicate(), Shard, Partial
mesh = init_device_mesh(\"cpu\", (2, 4), mesh_dim_names=(\"dp\", \"tp\"))
plain = init_device_mesh(\"cpu\", (2, 4))
dp, tp = mesh[\"dp\"], mesh[\"tp\"]
";

struct Row<'a> {
    statement: &'a str,
    arguments: Vec<&'a str>,
    answer: &'a str,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    text.lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [statement, arguments, answer] = fields.as_slice() else { panic!("a row has three fields: {line}") };
            Row { statement, arguments: arguments.split(" ; ").collect(), answer }
        })
        .collect()
}

/// `8,8@tp:S(1)` as an expression.
fn argument(text: &str) -> String {
    let Some((shape, rest)) = text.split_once('@') else { return format!("torch.randn({text})") };
    let (mesh, placements) = rest.split_once(':').expect("a mesh and placements");
    let mesh = if mesh == "dp,tp" { "mesh" } else { mesh };
    let listed: Vec<&str> = placements.split(' ').map(|p| if p == "P" { "P()" } else { p }).collect();
    format!("distribute_tensor(torch.randn({shape}), {mesh}, [{}])", listed.join(", "))
}

/// A program for one row: a finding in one says nothing of another.
fn program(row: &Row<'_>) -> (String, u32) {
    let mut text = HEAD.to_string();
    let mut statement = row.statement.to_string();
    for (name, given) in ["x", "y", "z"].iter().zip(&row.arguments) {
        writeln!(text, "{name} = {}", argument(given)).expect("a string grows");
        statement = statement.replace(&format!("{{{name}}}"), name);
    }
    writeln!(text, "r = {statement}").expect("a string grows");
    let line = u32::try_from(text.lines().count()).expect("a program is short");
    (text, line)
}

/// The answer without the kind of a pending reduction, which a type does not say; nothing for what is no distributed tensor.
fn recorded(answer: &str) -> String {
    let words = answer.trim_start_matches('*').split(' ').map(|w| if w.starts_with("P(") { "P" } else { w });
    let known = |w: &&str| w.starts_with("S(") || matches!(*w, "R" | "P");
    if words.clone().all(|w| known(&w)) { words.collect::<Vec<_>>().join(" ") } else { String::new() }
}

/// `S(0) R` from the types on the axes of the mesh.
fn shown(types: &[(String, String)], answer: &str) -> String {
    let of = |axis: &str| types.iter().find(|(a, _)| a == axis).map_or("?", |(_, t)| t.as_str());
    if answer.split(' ').count() == 2 { format!("{} {}", of("dp"), of("tp")) } else { of("tp").to_string() }
}

#[test]
fn single_statements_are_as_recorded() {
    let text = support::read("tests/dtensor/records.tsv");
    let rows = rows(&text);
    let programs: Vec<(String, u32)> = rows.iter().map(program).collect();
    let names: Vec<String> = (0..programs.len()).map(|i| format!("p{i}.py")).collect();
    let files = support::files(names.iter().zip(&programs).map(|(name, (text, _))| (name.as_str(), text.as_str())));
    let rules = builtin();
    let Report { diagnostics, types, .. } = support::on_threads(0, || support::run(&rules, &files, Want::Types));
    let (mut errors, mut warnings) = (BTreeSet::new(), BTreeSet::new());
    for found in &diagnostics {
        support::assert_title(found);
        let at = (files[found.place.file].path.as_str(), support::line(&files, found));
        let warned = found.severity != Severity::Error;
        if warned {
            warnings.insert(at)
        } else {
            errors.insert(at)
        };
    }
    let mut inferred = BTreeMap::new();
    for row in types.iter().filter(|row| row.variable == "r") {
        inferred.insert((row.path.as_str(), row.line), row.types.as_slice());
    }
    let (mut agree, mut silent, mut wrong) = (0, 0, Vec::new());
    for (i, row) in rows.iter().enumerate() {
        let at = (names[i].as_str(), programs[i].1);
        let refused = row.answer.starts_with("error ");
        let completes = row.answer.starts_with('*');
        let recorded = recorded(row.answer);
        let found = inferred.get(&at).map(|types| shown(types, &recorded)).unwrap_or_default();
        let fits =
            found.split(' ').zip(recorded.split(' ')).all(|(f, r)| f == r || f == "?" || f.is_empty() || r.is_empty());
        match (refused, errors.contains(&at), warnings.contains(&at)) {
            (true, true, _) => agree += 1,
            (true, false, _) => silent += 1,
            (false, true, _) => {
                wrong.push(format!("{} {:?}: an error, and {}", row.statement, row.arguments, row.answer))
            }
            (false, false, true) if !completes => {
                wrong.push(format!("{} {:?}: a warning, and {}", row.statement, row.arguments, row.answer));
            }
            (false, false, _) if !fits => {
                wrong.push(format!("{} {:?}: {}, found {found}", row.statement, row.arguments, row.answer));
            }
            (false, false, warned) if warned == completes && found == recorded => agree += 1,
            (false, false, true) => agree += 1,
            (false, false, _) => silent += 1,
        }
    }
    let refusals: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].answer.starts_with("error ")).collect();
    let found = refusals.iter().filter(|i| errors.contains(&(names[**i].as_str(), programs[**i].1))).count();
    println!("{} statements: {agree} agree, {silent} not followed", rows.len());
    println!("{} refusals: {found} found", refusals.len());
    assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), rows.len(), &wrong[..wrong.len().min(40)]);
    assert!(agree * 100 >= rows.len() * 45, "{agree} of {} agree", rows.len());
}
