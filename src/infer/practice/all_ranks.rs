//! Groups and sizes that are surely not those of all ranks. In: expressions. Out: yes, where a parameter that has to be given is such a
//! group for all callers, or a rule says its axis. Never: a group of which the making is not seen, or that of the data ranks: both may
//! have all ranks. Next: `group_buffers.rs`, `world_rank.rs`.

use super::expr::Expr;
use super::near;
use super::view::View;
use super::wrapped::given;
use crate::infer::places;
use crate::ir::{ArgKind, FuncId, FuncKind, LocalId, Operand, ParamKind};
use crate::project::{ClassRef, Resolved};
use crate::rules::{Entry, Gives};
use crate::source::{Idx, Name, Place};

/// Words of numbers of all ranks, in a call that splits a model.
const ALL: &[&str] = &["world_size", "device_count", "gpus", "nproc"];

/// How far groups are followed to callers and constructors.
const MOST: usize = 3;

/// Words of numbers of ranks.
const COUNTS: &[&str] = &["world", "size", "device_count", "gpus", "degree", "num_rank"];

/// Whether a group is surely not that of all ranks.
pub fn is_other(view: &View<'_>, group: &Expr, depth: usize) -> bool {
    if depth > MOST {
        return false;
    }
    let group = near::deep(view, group);
    match &group {
        Expr::Local(local) => is_always_given(view, *local, depth),
        Expr::Attr(..) => {
            let Some((name, class)) = near::own_attribute(view, &group).zip(near::class_of(view)) else { return false };
            let set = near::assigned(view, class, name);
            let [(method, _, value)] = set.as_slice() else { return false };
            method.func.name == "__init__" && is_other(method, &method.expr(value), depth + 1)
        }
        Expr::Call { callee, .. } => near::path(view, callee).is_some_and(|path| has_axis(view, &path, Gives::Group)),
        _ => false,
    }
}

/// Whether a rule says that a function gives what belongs to an axis that is not that of the data; the project's own may give anything.
fn has_axis(view: &View<'_>, path: &str, gives: Gives) -> bool {
    let data = |axis: &Name| axis.contains("dp") || axis.contains("data");
    let of_library = matches!(view.project.path(path), Resolved::External(_) | Resolved::Package(_));
    let ruled = match view.rules.get(path) {
        Some(Entry::Group(rule)) => rule.gives == gives && !rule.axes.is_empty() && !rule.axes.iter().any(data),
        _ => false,
    };
    of_library && ruled
}

/// Whether a parameter has to be given, and every caller in the project gives it another group than that of all ranks.
fn is_always_given(view: &View<'_>, local: LocalId, depth: usize) -> bool {
    let Some(param) = view.func.params.iter().find(|p| p.local == local) else { return false };
    let named = ["group", "pg"].iter().any(|word| near::has_part(&param.name, word));
    let plain = matches!(param.kind, ParamKind::Normal | ParamKind::KeywordOnly | ParamKind::PositionalOnly);
    let hinted = param.hint.as_ref().is_none_or(|h| h.ends_with("ProcessGroup"));
    if !named || !plain || !hinted || param.has_default || !view.defs(local).is_empty() {
        return false;
    }
    // Methods have callers that their name does not find.
    let name = match view.func.class {
        Some(class) if view.func.name == "__init__" => {
            view.project.class(ClassRef { module: view.at.module, class }).name.clone()
        }
        None if view.func.kind == FuncKind::Function && view.func.parent == Some(FuncId::from_index(0)) => {
            view.func.name.clone()
        }
        _ => return false,
    };
    let file = view.project.file(view.at.module);
    let named = near::words(view.files[file].whole(), &name).count();
    let callers = given(view, local);
    // The definition names it once.
    named == callers.len() + 1
        && callers.iter().all(|(caller, _, value)| is_other(caller, value, depth + 1))
        && !view.files.saying(&name).any(|other| other != file && near::has_word(view.files[other].whole(), &name))
}

/// The size of a group that is surely not that of all ranks: as written, and where.
pub fn size_of_other(view: &View<'_>, size: &Operand) -> Option<(Name, Place)> {
    size_in(view, &view.through(size), 0)
}

/// The same of an expression.
pub fn size_in(view: &View<'_>, size: &Expr, depth: usize) -> Option<(Name, Place)> {
    match size {
        Expr::Call { callee, args, step } => {
            let path = near::path(view, callee);
            let found = match (&**callee, args.as_slice()) {
                (Expr::Attr(group, name), []) if name == "size" => is_other(view, group, 0),
                (_, [(kind, group)]) if path.as_ref().is_some_and(|p| p == "torch.distributed.get_world_size") => {
                    let first =
                        matches!(kind, ArgKind::Positional) || matches!(kind, ArgKind::Keyword(k) if k == "group");
                    first && is_other(view, group, 0)
                }
                (_, []) => path.is_some_and(|path| has_axis(view, &path, Gives::Size)),
                _ => false,
            };
            let place = view.place(view.steps.get(*step)?.id);
            found.then(|| (Name::from(view.text(place)), place))
        }
        Expr::Attr(..) if depth == 0 => {
            let name = near::own_attribute(view, size)?;
            let set = near::assigned(view, near::class_of(view)?, name);
            let [(method, _, value)] = set.as_slice() else { return None };
            size_in(method, &method.through(value), depth + 1)
        }
        _ => None,
    }
}

/// Whether the groups of a file may be that of all ranks: it compares two numbers of ranks, makes a mesh of one dim, or splits a model over
/// all of them.
pub fn may_be_all(view: &View<'_>) -> bool {
    let text = view.file();
    compares_sizes(text) || makes_one_dim(text) || splits_over_all(text)
}

/// The texts between a word and the bracket that closes what it opens, without brackets inside: as much as is asked of them.
fn opened<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = &'t str> {
    places::starts(text, word).map(move |at| {
        let rest = &text[at + word.len()..];
        rest.split([')', ']', '\n']).next().unwrap_or(rest)
    })
}

/// `init_device_mesh("cuda", (world,), mesh_dim_names=("tp",))`
fn makes_one_dim(text: &str) -> bool {
    opened(text, "mesh_dim_names=").any(|names| names.matches(['"', '\'']).count() == 2)
}

/// `initialize_model_parallel(torch.cuda.device_count())`
fn splits_over_all(text: &str) -> bool {
    opened(text, "_model_parallel(").any(|sizes| near::has_any(&sizes.to_lowercase(), ALL))
}

/// Whether two numbers of ranks are compared: they may be equal on purpose, as without other axes.
fn compares_sizes(text: &str) -> bool {
    let counts = |side: &str| COUNTS.iter().any(|word| side.contains(word));
    ["==", "!="].iter().any(|op| {
        places::starts(text, op).any(|at| {
            let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
            let line = text[start..].lines().next().unwrap_or_default().to_lowercase();
            line.split_once(op).is_some_and(|(left, right)| counts(left) && counts(right))
        })
    })
}
