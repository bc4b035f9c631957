//! How many dims a mesh has, and how many placements are given for it. In: a function. Out: calls with another number of placements
//! than their mesh has dims. Never: a mesh whose dims differ between callers, or a function that asks for them. Source:
//! torch.distributed.tensor: one placement for each mesh dim. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, BinOp, Const, LocalId, Operand, Rvalue};
use crate::source::{Name, Place};

/// Functions with a mesh and placements: their last name, and where both are.
const APIS: &[(&str, usize, usize)] = &[
    ("DTensorSpec", 0, 1),
    ("distribute_tensor", 1, 2),
    ("from_local", 1, 2),
    ("redistribute", 0, 1),
    ("DTensor.from_local", 1, 2),
];

/// Factories with `device_mesh` and `placements` as keywords.
const FACTORIES: &[&str] = &["zeros", "ones", "empty", "full", "rand", "randn"];

/// Words without which no call gives a mesh and placements.
pub const WORDS: &[&str] = &["placements", "dtensorspec", "distribute_tensor", "from_local", "redistribute"];

pub fn counts(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((name, args)) = call(view, i) else { continue };
        if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
            continue;
        }
        let Some((mesh, placements)) = arguments(view, &name, args) else { continue };
        if super::axis_map::is_changed(view, placements) {
            continue;
        }
        let Some(given) = length(view, &near::deep(view, &view.expr(placements)), 0) else { continue };
        let Some((dims, why)) = dims(view, mesh) else { continue };
        if given != dims {
            let mistake = Placements::Count { api: name, given, dims, why };
            out.push((view.place(step.id), Practice::Placements(mistake)));
        }
    }
}

fn call<'a>(view: &View<'a>, step: usize) -> Option<(Name, &'a [Arg])> {
    match view.value(step)? {
        Rvalue::Call { callee, args } => Some((Name::from(view.through(callee).last_name()?), args)),
        Rvalue::CallMethod { name, args, .. } => Some((name.clone(), args)),
        _ => None,
    }
}

fn arguments<'a>(view: &View<'a>, name: &str, args: &'a [Arg]) -> Option<(&'a Operand, &'a Operand)> {
    let named = |k: &str| args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(n) if n == k)).map(|a| &a.value);
    let placements = named("placements");
    if FACTORIES.contains(&name) {
        return Some((named("device_mesh")?, placements?));
    }
    let (_, mesh, at) = APIS.iter().find(|(n, ..)| *n == name)?;
    let mesh = named("mesh").or_else(|| named("device_mesh")).or_else(|| view.argument(args, *mesh, "device_mesh"))?;
    Some((mesh, placements.or_else(|| view.argument(args, *at, "placements"))?))
}

/// The number of placements.
fn length(view: &View<'_>, expr: &Expr, depth: usize) -> Option<usize> {
    if depth > 4 {
        return None;
    }
    match expr {
        Expr::Build(items) => {
            let each =
                |e: &Expr| matches!(e, Expr::Call { .. } | Expr::Item(..) | Expr::Choice(..)) || is_placement(view, e);
            (!items.is_empty() && items.iter().all(each)).then_some(items.len())
        }
        Expr::Binary(BinOp::Mul, a, b) => {
            let (list, count) = if matches!(**a, Expr::Build(_)) { (a, b) } else { (b, a) };
            let Expr::Const(Const::Int(n)) = **count else { return None };
            Some(length(view, list, depth + 1)? * usize::try_from(n).ok()?)
        }
        Expr::Binary(BinOp::Add, a, b) => {
            let (a, b) = (near::deep(view, a), near::deep(view, b));
            Some(length(view, &a, depth + 1)? + length(view, &b, depth + 1)?)
        }
        Expr::Call { callee, args, .. } if matches!(callee.last_name(), Some("tuple" | "list")) => {
            length(view, &near::deep(view, &args.first()?.1), depth + 1)
        }
        _ => None,
    }
}

/// A variable that holds one placement, by its value or name.
fn is_placement(view: &View<'_>, expr: &Expr) -> bool {
    match near::deep(view, expr) {
        Expr::Call { callee, .. } => matches!(callee.last_name(), Some("Replicate" | "Shard" | "Partial")),
        Expr::Local(l) => view.local_name(l).ends_with("placement"),
        _ => false,
    }
}

/// The number of dims of a mesh, and what says so.
fn dims(view: &View<'_>, mesh: &Operand) -> Option<(usize, Option<Place>)> {
    let expr = near::deep(view, &view.expr(mesh));
    if let Some(dims) = made(view, &expr) {
        let Expr::Call { step, .. } = expr else { return Some((dims, None)) };
        return Some((
            dims,
            view.steps.get(step).map(|s| view.place(s.id)).filter(|_| matches!(mesh, Operand::Local(_))),
        ));
    }
    if let Some(attr) = near::own_attribute(view, &expr) {
        let class = near::class_of(view)?;
        let set = near::assigned(view, class, attr);
        let all: Vec<Option<usize>> = set.iter().map(|(m, _, v)| made(m, &near::deep(m, &m.expr(v)))).collect();
        let first = (*all.first()?)?;
        return all
            .iter()
            .all(|d| *d == Some(first))
            .then(|| (first, set.first().map(|(m, s, _)| m.place(m.steps[*s].id))));
    }
    let Expr::Local(local) = expr else { return None };
    parameter(view, local)
}

/// The sizes and the names of the dims of a mesh that a step makes, where they are written down.
pub(super) fn made_by(view: &View<'_>, step: usize) -> Option<(Vec<Expr>, Option<Vec<Expr>>)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    view.callee(value).filter(|path| super::lost::last(path) == "init_device_mesh")?;
    let items = |position: usize, keyword: &str| {
        let written = view.argument(args, position, keyword)?;
        match near::deep(view, &view.expr(written)) {
            Expr::Build(items) => Some(items),
            _ => None,
        }
    };
    Some((items(1, "mesh_shape").unwrap_or_default(), items(2, "mesh_dim_names")))
}

/// The dims of a mesh that is made or sliced on the spot.
fn made(view: &View<'_>, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Item(base, index) => match &**index {
            Expr::Const(Const::Str(_)) if is_mesh(view, base) => Some(1),
            Expr::Build(items) if is_mesh(view, base) && items.iter().all(|i| i.string().is_some()) => {
                Some(items.len())
            }
            _ => None,
        },
        Expr::Call { callee, args, .. } => match callee.last_name()? {
            "init_device_mesh" => {
                let named = |k: &str| {
                    args.iter().find(|(kind, _)| matches!(kind, ArgKind::Keyword(n) if n == k)).map(|(_, e)| e)
                };
                let shape = named("mesh_shape")
                    .or_else(|| args.get(1).filter(|(k, _)| *k == ArgKind::Positional).map(|(_, e)| e));
                [shape, named("mesh_dim_names")].into_iter().flatten().find_map(|e| match near::deep(view, e) {
                    Expr::Build(items) => Some(items.len()),
                    _ => None,
                })
            }
            "DeviceMesh" => match near::deep(view, &args.get(1)?.1) {
                Expr::Build(rows) => match rows.first()? {
                    Expr::Build(_) => rows
                        .iter()
                        .all(|r| matches!(r, Expr::Build(x) if !matches!(x.first(), Some(Expr::Build(_)))))
                        .then_some(2),
                    Expr::Const(_) => Some(1),
                    _ => None,
                },
                _ => None,
            },
            "_flatten" => Some(1),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the base of a slice is called a mesh.
fn is_mesh(view: &View<'_>, base: &Expr) -> bool {
    let name = match base {
        Expr::Local(l) => view.local_name(*l).as_str().to_lowercase(),
        other => other.last_name().unwrap_or_default().to_lowercase(),
    };
    name.contains("mesh") || base.call_of("init_device_mesh").is_some()
}

/// A mesh that is a parameter: its name, a comment about it, or the arguments of all callers.
fn parameter(view: &View<'_>, local: LocalId) -> Option<(usize, Option<Place>)> {
    if !view.is_param(local) || !view.defs(local).is_empty() {
        return None;
    }
    let code = view.code();
    let name = view.local_name(local).to_lowercase();
    if [".ndim", "mesh_dim_names", "len(", ".mesh.dim", "isinstance"].iter().any(|w| code.contains(w)) {
        return None;
    }
    if let Some(dims) = spoken(&name) {
        return Some((dims, None));
    }
    let near = near::notes(view).into_iter().find_map(|n| {
        // A mesh that is cut out of another one has fewer dims than that.
        if near::has_any(&n.text, CUT_OUT) {
            return None;
        }
        let at = n.text.find(name.as_str()).filter(|_| near::has_word(&n.text, &name))?;
        let rest: String = n.text[at + name.len()..].chars().take(24).collect();
        let before: String = n.text[..at].chars().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect();
        let says = rest.trim_start_matches([' ', ':', '`']);
        // What is said of it ends where something else is spoken of.
        let says = says.split([',', ';', '.']).next().unwrap_or_default();
        let follows = ["is", "=", "a ", "1", "2", "3", "("].iter().any(|w| says.starts_with(w));
        let stated = follows.then(|| spoken(says)).flatten().or_else(|| spoken(&before));
        stated.map(|d| (d, n.place))
    });
    let called = by_callers(view, local);
    match (near, called) {
        (Some((dims, place)), Some((other, _))) if dims == other => Some((dims, place)),
        (Some(_), Some(_)) => None,
        (near, called) => near.or(called),
    }
}

/// Words for a mesh that is a part of another one.
const CUT_OUT: &[&str] = &["slice", "submesh", "sub-mesh", "one of", "dims of"];

/// `2-D`, `2d`, `two-dimensional`, `mesh_2d`.
fn spoken(text: &str) -> Option<usize> {
    let forms: &[(usize, &[&str])] = &[
        (1, &["1-d", "1d", "one-dimensional", "1 dim"]),
        (2, &["2-d", "2d", "two-dimensional", "2 dims"]),
        (3, &["3-d", "3d", "three-dimensional", "3 dims"]),
    ];
    let part = |w: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != ' ').any(|p| p.trim() == w)
            || near::has_word(text, w)
    };
    let found: Vec<usize> = forms.iter().filter(|(_, words)| words.iter().any(|w| part(w))).map(|(n, _)| *n).collect();
    match found.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// The dims that all callers in the file give a parameter.
fn by_callers(view: &View<'_>, local: LocalId) -> Option<(usize, Option<Place>)> {
    let (position, param) = view.func.params.iter().enumerate().find(|(_, p)| p.local == local)?;
    let mut found = None;
    for (caller, step) in super::called::callers(view) {
        let Some(Rvalue::Call { args, .. }) = caller.value(step) else { return None };
        let given = caller.argument(args, position, &param.name)?;
        let expr = near::deep(&caller, &caller.expr(given));
        let name = match &expr {
            Expr::Local(l) => spoken(&caller.local_name(*l).to_lowercase()),
            other => other.last_name().and_then(|n| spoken(&n.to_lowercase())),
        };
        let dims = made(&caller, &expr).or(name)?;
        match found {
            None => found = Some((dims, Some(caller.place(caller.steps[step].id)))),
            Some((known, _)) if known == dims => {}
            Some(_) => return None,
        }
    }
    found
}
