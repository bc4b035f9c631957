//! Docstrings that say which collectives forward and backward are. In: docstrings of classes, of their forwards and of functions that
//! apply one class; the derivations. Out: those that say something else than the code does. Never: docstrings that name no pair.
//! Source: DESIGN.md section 6. Next: `root.rs`, which asks.

use super::super::finding::{Finding, FindingKind};
use super::super::memo::{Memo, Task, kept_each};
use super::super::output::DerivedRow;
use super::derive::Case;
use crate::ir::{FuncKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::source::{Files, Name, Place};
use crate::types::Term;
use std::sync::Arc;

/// What one direction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Identity,
    AllReduce,
    AllGather,
    ReduceScatter,
    Split,
    AllToAll,
}

/// Ways to write a step; those that are part of others come after them.
const WORDS: &[(&str, Step)] = &[
    ("reduce-scatter", Step::ReduceScatter),
    ("reduce scatter", Step::ReduceScatter),
    ("reducescatter", Step::ReduceScatter),
    ("reduce_scatter", Step::ReduceScatter),
    (" rs", Step::ReduceScatter),
    ("all-reduce", Step::AllReduce),
    ("all reduce", Step::AllReduce),
    ("allreduce", Step::AllReduce),
    ("all_reduce", Step::AllReduce),
    ("all-to-all", Step::AllToAll),
    ("all to all", Step::AllToAll),
    ("alltoall", Step::AllToAll),
    ("all_to_all", Step::AllToAll),
    ("all-gather", Step::AllGather),
    ("all gather", Step::AllGather),
    ("allgather", Step::AllGather),
    ("all_gather", Step::AllGather),
    (" ag", Step::AllGather),
    ("gather", Step::AllGather),
    ("split", Step::Split),
    ("identity", Step::Identity),
    ("copy", Step::Identity),
];

/// What a docstring says of an autograd function.
struct Claim {
    class: ClassRef,
    claimed: (Step, Step),
    name: Name,
    place: Place,
}

/// The docstrings of a project that its code does not keep.
pub fn claims(project: &Project, files: &Files, rows: &[Arc<DerivedRow>], memo: Option<&Memo>) -> Vec<Finding> {
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let claims = kept_each(memo, &modules, Task::Claims, |module| claims_in(project, files, module));
    let of_row = |claim: &Claim| {
        let row = rows.iter().find(|r| r.class == claim.class && !r.cases.is_empty() && r.gaps.is_empty())?;
        let (case, in_forward) = other(row, claim.claimed)?;
        Some(finding(claim.place, claim.name.clone(), case, in_forward))
    };
    claims.iter().flat_map(|part| part.iter()).filter_map(of_row).collect()
}

/// What the docstrings of a module say.
fn claims_in(project: &Project, files: &Files, module: ModuleId) -> Vec<Claim> {
    let mut out = Vec::new();
    let m = &project.modules[module];
    for (func, f) in m.ir.funcs.iter_enumerated() {
        let Some(claimed) = f.documented(&files[m.file]).and_then(pair) else { continue };
        let at = FuncRef { module, func };
        let class = match f.kind {
            FuncKind::ClassBody => m.ir.classes.ids().find(|c| m.ir.classes[*c].body == func),
            _ if f.class.is_some() => f.class.filter(|_| f.name == "forward"),
            _ => None,
        };
        let class = match class {
            Some(class) => Some(ClassRef { module, class }),
            None if f.kind == FuncKind::Function => applied(project, at),
            None => None,
        };
        let Some(class) = class else { continue };
        let (name, span) = match f.kind {
            FuncKind::ClassBody => (project.class(class).name.clone(), project.class(class).name_span),
            _ => (project.qualname(at), f.name_span),
        };
        out.push(Claim { class, claimed, name, place: Place { file: project.file(module), span } });
    }
    out
}

/// The case that contradicts a claim, if all of them do, and which direction does.
fn other(row: &DerivedRow, claimed: (Step, Step)) -> Option<(&Case, bool)> {
    let mut found = None;
    for case in &row.cases {
        if case.trouble.is_some() || case.legal.is_empty() || case.ambiguous || !case.further.is_empty() {
            return None;
        }
        let [backward] = case.backward.as_slice() else { return None };
        let (f, b) = (step(&case.forward)?, step(backward)?);
        if (f, b) == claimed {
            return None;
        }
        found = found.or(Some((case, f != claimed.0)));
    }
    found
}

/// The only step of a chain that tells ranks apart.
fn step(term: &Term) -> Option<Step> {
    let steps = term.steps();
    let mut out = Step::Identity;
    for one in steps {
        let this = match one {
            Term::AllReduce { .. } => Step::AllReduce,
            Term::AllGather { .. } => Step::AllGather,
            Term::ReduceScatter { .. } => Step::ReduceScatter,
            Term::Split { .. } => Step::Split,
            Term::AllToAll { .. } => Step::AllToAll,
            Term::Arg(_) | Term::Grad(_) | Term::Swapped { .. } | Term::Moved { .. } => continue,
            _ => return None,
        };
        if out != Step::Identity {
            return None;
        }
        out = this;
    }
    Some(out)
}

/// The pair that a docstring names: `forward: X, backward: Y`, or `X in forward, Y in backward`.
fn pair(doc: &str) -> Option<(Step, Step)> {
    if !doc.contains("orward") || !doc.contains("ackward") {
        return None;
    }
    let text = doc.to_lowercase();
    let once = |word: &str| {
        let mut found = text.match_indices(word).map(|(at, _)| at);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    };
    let (f, b) = (once("forward")?, once("backward")?);
    if b < f || text[f..b].contains("\n\n") {
        return None;
    }
    let after = |at: usize, word: &str| text[at + word.len()..].trim_start().starts_with(':');
    let between = &text[f + "forward".len()..b];
    if after(f, "forward") {
        let rest = text[b + "backward".len()..].split(['\n', '.']).next().unwrap_or("");
        return Some((only(between)?, only(rest)?));
    }
    let leads = |text: &str| ["in ", "in the ", "during ", "during the "].iter().any(|w| text.ends_with(w));
    if leads(&text[..f]) && leads(between) {
        let before = text[..f].rsplit(['\n', '.']).next().unwrap_or("");
        return Some((only(before)?, only(between)?));
    }
    None
}

/// The one step that a piece of text names.
fn only(text: &str) -> Option<Step> {
    let mut left = format!(" {text} ");
    let mut found = None;
    for (word, step) in WORDS {
        let is_short = word.starts_with(' ');
        let hit = if is_short {
            [" ", ",", "<", ";"].iter().any(|end| left.contains(&format!("{word}{end}")))
        } else {
            left.contains(word)
        };
        if hit {
            if found.is_some_and(|f| f != *step) {
                return None;
            }
            found = Some(*step);
            left = left.replace(word, " ");
        }
    }
    found
}

/// The class that a function returns the application of.
fn applied(project: &Project, at: FuncRef) -> Option<ClassRef> {
    let func = project.func(at);
    let mut found = None;
    let mut returned = false;
    for node in func.body() {
        match &node.stmt {
            Stmt::Assign { value: Rvalue::CallMethod { base: Operand::Global(class), name, .. }, .. }
                if name == "apply" =>
            {
                if found.is_some() {
                    return None;
                }
                found = Some(class.clone());
            }
            Stmt::Return { .. } => returned = true,
            _ => {}
        }
    }
    match project.member(at.module, &found.filter(|_| returned)?)? {
        Resolved::Class(class) => Some(class),
        _ => None,
    }
}

fn finding(place: Place, name: Name, case: &Case, in_forward: bool) -> Finding {
    let kind = FindingKind::DocClaim {
        name,
        forward: case.forward.clone(),
        backward: case.backward[0].clone(),
        in_forward,
        forward_at: case.forward_at,
        backward_at: case.backward_at,
    };
    Finding::everywhere(place, kind)
}
