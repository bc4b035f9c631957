//! Paths beyond the number that is followed. In: paths that go on, and one more. Out: that one and the one that it differs least from as
//! one, in which variables that differ are not known. Never: one path of two that do other things to gradients. Next: `exec.rs`.

use super::Run;
use super::exec::alike_but_lists;
use super::value::{List, Num, State, Val};
use crate::infer::shared::Shared;
use crate::ir::LocalKind;
use crate::source::{Idx, Name};
use crate::types::Scale;

/// A variable of a frame, and what is left of its two values.
type Joined = (usize, usize, Option<Val>);

impl Run<'_> {
    /// Puts a path together with one of those that are followed; where none does the same to gradients, it is given up.
    pub fn give_up(&self, kept: &mut [State], state: &State) {
        let joined = |at: usize| Some((at, self.open_locals(&kept[at], state)?));
        let candidates = (0..kept.len())
            .filter(|at| alike_but_lists(&kept[*at], state) && lists_open(&kept[*at], state))
            .filter_map(joined);
        let Some((at, differing)) = candidates.min_by_key(|(_, differing)| differing.len()) else { return };
        let known = &mut kept[at];
        for (frame, local, value) in differing {
            if let Some(frame) = known.frames.get_mut(frame) {
                match value {
                    Some(value) => frame.locals.insert(local, value),
                    None => frame.locals.remove(local),
                }
            }
        }
        for (at, list) in state.lists.iter().enumerate() {
            match known.lists.get(at) {
                None => known.lists.push(list.clone()),
                Some(own) if own == list => {}
                Some(_) => known.lists[at] = Shared::new(List { items: vec![Val::named("item")], length: None }),
            }
        }
        known.stands_for(state);
    }

    /// The variables in which two paths differ; nothing if one of them holds what cannot be left open.
    fn open_locals(&self, a: &State, b: &State) -> Option<Vec<Joined>> {
        if a.frames.len() != b.frames.len() {
            return None;
        }
        let mut out = Vec::new();
        for (number, (x, y)) in a.frames.iter().zip(b.frames.iter()).enumerate() {
            if x.is(y) {
                continue;
            }
            if x.at != y.at {
                return None;
            }
            for (local, declared) in self.project.func(x.at).locals().iter_enumerated() {
                let at = local.index();
                match (x.locals.get(at), y.locals.get(at)) {
                    (None, None) => {}
                    (Some(one), Some(other)) if one == other => {}
                    (Some(one), Some(other)) => out.push((number, at, Some(open(one, other, &declared.name)?))),
                    // Not set on one of them: it is known by its name alone, and a temporary is not used any more.
                    (Some(only), None) | (None, Some(only)) => {
                        (declared.kind == LocalKind::Temp || is_open(only)).then_some(())?;
                        out.push((number, at, None));
                    }
                }
            }
        }
        Some(out)
    }
}

/// Whether lists in which two paths differ hold nothing that gradients belong to.
fn lists_open(a: &State, b: &State) -> bool {
    let open = |list: &List| list.items.iter().all(is_open);
    a.lists.iter().zip(b.lists.iter()).all(|(x, y)| x == y || open(x) && open(y))
}

/// What holds of either of two values.
fn open(one: &Val, other: &Val, name: &Name) -> Option<Val> {
    if !is_open(one) || !is_open(other) {
        return None;
    }
    let number = |v: &Val| matches!(v, Val::Num(_) | Val::Tensor(_) | Val::Zero(_));
    Some(match number(one) || number(other) {
        true => Val::Num(Num { id: 0, scale: Scale::Unknown, added: false, made: None }),
        false => Val::Named(name.clone()),
    })
}

/// Whether a value can be one of several: a number or a text, not what gradients belong to.
fn is_open(value: &Val) -> bool {
    match value {
        Val::Named(_) | Val::Const(_) | Val::Path(_) | Val::Zero(_) | Val::Num(_) | Val::Mask | Val::Test(_) => true,
        Val::Tensor(_) | Val::LossFunction(_) => true,
        Val::Pack(items) | Val::Tuple(items) => items.iter().all(is_open),
        Val::Dict(items) => items.iter().all(|(_, v)| is_open(v)),
        Val::Group(_) | Val::Mesh(_) | Val::List(_) | Val::Params(_) | Val::Param(_) | Val::Grad(_) => false,
        Val::Norm(_) | Val::Received(_) | Val::Modulo(_) | Val::ParamName | Val::Module(_) | Val::Optimizer => false,
        Val::Func(_) | Val::Class(_) | Val::Trainer(_) | Val::Accumulating(_) | Val::Object(_) => false,
        Val::Method(..) | Val::Reduce(_) | Val::Rounds(..) => false,
    }
}
