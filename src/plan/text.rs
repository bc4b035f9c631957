//! A plan for people. In: a question and its plan. Out: lines. Never: colours, or anything a program should read. Next:
//! `cli/plan.rs`.

use super::order;
use super::route::{Backward, Plan, Planner, Question, Route};
use super::traffic::{Collective, Step};
use super::{Device, Placement};
use std::fmt::Write;

/// The whole answer.
pub fn plan(question: &Question, plan: &Plan) -> String {
    let shape: Vec<String> = question.shape.iter().map(u64::to_string).collect();
    let [source, target] =
        [&question.source, &question.target].map(|placements| order::describe_placements(placements, &question.mesh));
    let (dtype, shape, mesh) = (question.dtype.name, shape.join(", "), question.mesh.describe());
    let mut text = format!("{dtype}[{shape}] on ({mesh}): {source} -> {target}\n\n");
    section(&mut text, question, "forward", &plan.forward);
    match &plan.backward {
        Some(Ok(Backward { redistribute, from_local })) => {
            section(&mut text, question, "backward", redistribute);
            if !from_local.steps.is_empty() {
                section(&mut text, question, "backward of from_local", from_local);
            }
        }
        Some(Err(refusal)) => {
            let _ =
                writeln!(text, "backward: {}\n  = torch: {}: {}\n", refusal.words, refusal.kind.name(), refusal.text);
        }
        None => {
            let _ = writeln!(text, "backward: none, {dtype} has no gradient\n");
        }
    }
    let sum = |routes: &[&Route]| routes.iter().fold(0u64, |all, route| all.saturating_add(route.bytes()));
    let routes: Vec<&Route> = plan.routes().collect();
    let collectives: usize = routes.iter().map(|route| route.collectives()).sum();
    let noun = if collectives == 1 { "collective" } else { "collectives" };
    let (forward, backward) = routes.split_at(1);
    let (all, there, back) = (bytes(sum(&routes)), bytes(sum(forward)), bytes(sum(backward)));
    let _ = writeln!(text, "total: {collectives} {noun}, {all} sent per rank: {there} forward, {back} backward");
    text
}

/// One direction: its states, then a line for each step.
fn section(text: &mut String, question: &Question, title: &str, route: &Route) {
    let _ = writeln!(text, "{title}: {}", route.trace);
    if route.planner == Planner::Undecodable && question.mesh.ndim() > 1 {
        text.push_str(
            "  = note: these strided shards stand for no order of shards; PyTorch then plans greedily, and may fail\n",
        );
    }
    let rows: Vec<[String; 5]> = route.steps.iter().map(|step| row(question, step)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let [axis, change, what, group] = [0, 1, 2, 3].map(width);
    for (number, row) in rows.iter().enumerate() {
        let [a, c, w, g, rest] = row;
        let _ = writeln!(text, "  {}. {a:axis$}  {c:change$}  {w:what$}  {g:group$}  {rest}", number + 1);
    }
    if rows.is_empty() {
        text.push_str("  nothing to do\n");
    }
    text.push('\n');
}

/// Mesh dim, change, how, ranks, bytes and what the first rank then holds.
fn row(question: &Question, step: &Step) -> [String; 5] {
    let local: Vec<String> = step.local.iter().map(u64::to_string).collect();
    let ranks = if step.group == 1 { "1 rank".to_owned() } else { format!("{} ranks", step.group) };
    [
        question.mesh.name(step.mesh_dim),
        format!("{} -> {}", step.from, step.to),
        how(question, step).to_owned(),
        ranks,
        format!("{} per rank, then holds [{}]", bytes(step.bytes), local.join(", ")),
    ]
}

fn how(question: &Question, step: &Step) -> &'static str {
    let chunk = matches!(step.to, Placement::Strided { .. })
        || matches!((step.from, step.to), (Placement::Strided { .. }, Placement::Shard(_)));
    match step.collective {
        Some(Collective::AllToAll) if question.machine.device == Device::Cpu => "all_gather, keep a chunk",
        Some(Collective::AllGather) if chunk => "all_gather, keep a chunk",
        Some(Collective::AllReduce) if chunk => "all_reduce, keep a chunk",
        Some(collective) => collective.name(),
        None if step.group == 1 => "nothing",
        None => match (step.from, step.to) {
            (_, Placement::Shard(_) | Placement::Strided { .. }) => "keep a chunk",
            (Placement::Shard(_), Placement::Partial(_)) => "fill with zeros",
            (Placement::Replicate, Placement::Partial(super::ReduceOp::Sum)) => "divide",
            _ => "nothing",
        },
    }
}

/// `384 B`, `1.5 KiB`; exact below a KiB, else to one decimal.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut amount = count as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}
