//! Who calls a function in its own file. In: a function. Out: the calls, in the order of the file, with the view each stands in. Never:
//! calls from another file, whose change does not check this one again. Next: `wrapped.rs` and `all_ranks.rs`, which ask what they hand in.

use super::near;
use super::view::View;
use crate::ir::Rvalue;
use crate::project::{FuncRef, ModuleId};
use crate::source::Name;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// A call: where it stands among the functions of the file, and its step.
type Site = (FuncRef, usize);

/// The calls of one file.
#[derive(Default)]
pub struct Calls {
    /// By what the path of the callee is.
    by_path: FxHashMap<Name, Vec<Site>>,
    /// By the name of the method, whatever has it.
    by_method: FxHashMap<Name, Vec<Site>>,
}

/// The calls of a file. A search for each function of it would look at each call as often as there are functions.
fn calls(view: &View<'_>, module: ModuleId) -> Rc<Calls> {
    let make = || {
        let mut out = Calls::default();
        for at in near::functions(view, module) {
            let caller = near::shared(view, at);
            for step in 0..caller.steps.len() {
                match caller.value(step) {
                    Some(Rvalue::Call { callee, .. }) => {
                        if let Some(path) = near::path(&caller, &caller.through(callee)) {
                            out.by_path.entry(path).or_default().push((at, step));
                        }
                    }
                    Some(Rvalue::CallMethod { name, .. }) => {
                        out.by_method.entry(name.clone()).or_default().push((at, step));
                    }
                    _ => {}
                }
            }
        }
        out
    };
    match view.beside() {
        Some(beside) => beside.calls(module, make),
        None => Rc::new(make()),
    }
}

/// The calls of a path in the file of a function, and those of a method by its name where one is given.
pub fn sites<'a>(view: &View<'a>, path: &str, method: Option<&str>) -> Vec<(Rc<View<'a>>, usize)> {
    let calls = calls(view, view.at.module);
    let plain = calls.by_path.get(path).into_iter().flatten();
    let methods = method.and_then(|name| calls.by_method.get(name)).into_iter().flatten();
    let mut all: Vec<Site> = plain.chain(methods).copied().collect();
    all.sort_unstable_by_key(|(at, step)| (at.func, *step));
    all.into_iter().map(|(at, step)| (near::shared(view, at), step)).collect()
}

/// The calls of a function in its own file, with the view they stand in.
pub fn callers<'a>(view: &View<'a>) -> Vec<(Rc<View<'a>>, usize)> {
    sites(view, &view.project.qualified(view.at), None)
}
