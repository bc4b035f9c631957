//! Finalisers that nothing calls. In: a function with a backward pass and a step, the reducers of the project. Out: the step, where a
//! function that sums the gradients of marked parameters is named nowhere else. Never: a function that anything names, or a library
//! without a training loop. Source: DESIGN.md section 7. Next: `data_sum.rs`.

use super::found::{Practice, Scales};
use super::reducers::Reducer;
use super::view::View;
use super::{Found, Lint, data_sum};
use crate::ir::FuncKind;
use crate::project::FuncRef;

/// Functions that name one another, at most so many deep.
const MOST_CALLERS: usize = 3;

/// Steps that a finaliser should come before, and nothing calls it.
pub fn finalisers<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    if view.func.kind != FuncKind::Function {
        return;
    }
    let Some((backward, last)) = data_sum::region(view) else { return };
    let place = view.place(view.steps[last].id);
    let told =
        |p: &Practice| matches!(p, Practice::Scales(Scales::DataNotSummed { .. } | Scales::ReducerNotCalled { .. }));
    if out.iter().any(|(at, p)| *at == place && told(p)) {
        return;
    }
    let dead = |r: &&Reducer| data_sum::asks_mark(lint, r) && r.func != view.at && is_dead(lint, view.at, r.func, 0);
    let Some(left) = lint.reducers().all.iter().find(dead) else { return };
    let others = lint.reducers().over(left.axes.as_deref().unwrap_or_default()).any(|r| r.place != left.place);
    let (parameters, when) = data_sum::taken(lint, left);
    if others || parameters.count == 0 {
        return;
    }
    let function = lint.project.func(left.func).name.clone();
    let backward = view.place(view.steps[backward].id);
    let mistake = Scales::ReducerNotCalled { function, reducer: left.place, backward, parameters, when };
    out.push((place, Practice::Scales(mistake)));
}

/// Whether nothing names a function but imports, and functions about gradients that nothing names either. `from`: the loop.
fn is_dead(lint: &Lint<'_>, from: FuncRef, at: FuncRef, depth: usize) -> bool {
    let func = lint.project.func(at);
    let sums = depth == 0 || ["grad", "reduce", "sync"].iter().any(|w| func.name.contains(w));
    if at == from || !sums || func.class.is_some() || func.kind != FuncKind::Function || depth > MOST_CALLERS {
        return false;
    }
    lint.files.saying(&func.name).all(|file| {
        let Some(module) = lint.project.module_of(file) else { return true };
        let text = lint.files[file].whole();
        text.match_indices(func.name.as_str()).all(|(start, word)| {
            let inside = |f: &crate::ir::Func| f.span.start as usize <= start && start < f.span.end as usize;
            let line = text[..start].rfind('\n').map_or(0, |n| n + 1);
            let rest = text[start + word.len()..].chars().next();
            if rest.is_some_and(|c| c.is_alphanumeric() || c == '_')
                || text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_')
                || module == at.module && inside(func)
                || text[line..].trim_start().starts_with("from ")
            {
                return true;
            }
            let around = lint.project.modules[module]
                .ir
                .funcs
                .iter_enumerated()
                .filter(|(_, f)| f.kind == FuncKind::Function && inside(f))
                .last();
            around.is_some_and(|(func, _)| is_dead(lint, from, FuncRef { module, func }, depth + 1))
        })
    })
}
