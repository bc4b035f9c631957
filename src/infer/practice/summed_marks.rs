//! Marks for a sum of what is complete. In: a class that marks whole modules of its own with `True`, and the functions of the project that sum the gradients of marked parameters over ranks. Out: a
//! module whose output goes into a layer over the same ranks alone, which sums the gradient of its input itself. Never: in a file that speaks of sequence parallelism, in a project that may turn it on
//! for good; where the sum is divided, or something else takes part. Source: AReno, pull request 496. Next: `beside_layers.rs`, `doubled.rs`.

use super::beside_layers::{kept_layer, sums_gradient, used};
use super::class_marks::text_of;
use super::doubled::plain;
use super::expr::Expr;
use super::found::Practice;
use super::marking::{mark_set, mark_value, own_names};
use super::reducers::Reducer;
use super::unshared::Unshared;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::rules::LayerRule;
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;
use std::rc::Rc;
use std::sync::Arc;

/// How sequence parallelism is written.
const SEQUENCE: &[&str] =
    &["sequence_parallel", "sequence parallel", "sequence-parallel", "sequenceparallel", "seq_parallel", "s/tp"];

/// Words of a class or of layers in which gradients may be summed elsewhere, or not at all.
const OTHERWISE: &[&str] =
    &["_hook(", "disable_grad_reduce", "allreduce_dgrad", "expert", "autograd", "scatter", "explicit", "checkpoint("];

/// How the number of tensor-parallel ranks is written.
const SIZES: &[&str] = &[
    "tensor_model_parallel_world_size",
    "tensor_parallel_size",
    "tensor_model_parallel_size",
    "tp_",
    "/ tp",
    "/= tp",
    "(tp",
];

/// `p.sum_over_tp = True` of what goes into `self.column`
pub fn complete<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = text_of(lint, class.at);
    let sums = &lint.reducers().all;
    let known = |reducer: &&Reducer| {
        reducer.outer.is_empty() && marks_of(reducer).is_some_and(|mark| text.contains(mark.as_str()))
    };
    if !text.contains("ParallelLinear") || !sums.iter().any(|r| known(&r)) {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let file = init.file().to_lowercase();
    let cuts = file.contains("parallel_rank") || near::has_any(&file, SEQUENCE);
    if cuts || near::has_any(&text.to_lowercase(), OTHERWISE) || may_split(lint) || divides(lint) {
        return;
    }
    let Some(forward) = lint.project.own_method(class.at, "forward") else { return };
    let forward = near::shared(init, forward);
    for step in 0..init.steps.len() {
        let Some((mark, names)) = marked(init, step) else { continue };
        let sums_it = |r: &&Reducer| known(r) && marks_of(r) == Some(&mark) && plain(lint, r) && is_called(lint, r);
        let Some(reducer) = sums.iter().find(sums_it).filter(|_| sets_true_alone(lint, &mark)) else { continue };
        let Some(axes) = reducer.axes.as_ref() else { continue };
        let all: Option<Vec<(Name, Place)>> =
            names.iter().map(|name| fed(lint, (init, &forward), name, axes)).collect();
        if let Some((layer, first)) = all.and_then(|all| all.into_iter().next()) {
            let module = names[0].clone();
            let mistake =
                Unshared::MarkedComplete { module, mark, axes: axes.clone(), layer, first, sum: reducer.place };
            out.push((init.place(init.steps[step].id), Practice::Unshared(mistake)));
            return;
        }
    }
}

/// The mark that a sum asks for, and nothing else.
fn marks_of(reducer: &Reducer) -> Option<&Name> {
    super::marks::asked(reducer)
}

/// The mark that a step of a constructor sets to `True`, whatever the configuration, and the modules whose parameters get it.
fn marked(init: &View<'_>, step: usize) -> Option<(Name, Vec<Name>)> {
    let stmt = init.steps[step].stmt;
    let (target, mark) = mark_set(init, stmt).filter(|_| init.steps[step].guards.is_empty())?;
    let on = mark_value(stmt).is_some_and(|value| init.expr(value) == Expr::Const(Const::Bool(true)));
    let names = match &target {
        Expr::Local(local) => {
            let def = init.last_def(*local, step)?;
            match init.steps[def].stmt {
                Stmt::For { iter, .. } => walked(init, iter, 8)?,
                _ => return None,
            }
        }
        Expr::Attr(base, name) if name == "weight" || name == "bias" => vec![near::own_attribute(init, base)?.clone()],
        _ => return None,
    };
    (on && !names.is_empty()).then_some((mark, names))
}

/// The modules whose parameters a loop goes through: `(*self.a.parameters(), *self.b.parameters())`, `chain(...)`, `m.parameters()` for `m` of several.
fn walked(init: &View<'_>, iter: &Operand, depth: usize) -> Option<Vec<Name>> {
    let depth = depth.checked_sub(1)?;
    if let Some((_, Rvalue::Build { items, .. })) = init.source(iter) {
        let each = items.iter().map(|item| match item {
            Item::One(one) | Item::Star(one) => walked(init, one, depth),
        });
        return each.collect::<Option<Vec<_>>>().map(|all| all.concat());
    }
    of_expr(init, &init.through(iter), depth)
}

fn of_expr(init: &View<'_>, e: &Expr, depth: usize) -> Option<Vec<Name>> {
    let depth = depth.checked_sub(1)?;
    match e {
        Expr::Call { callee, args, .. } if matches!(callee.last_name(), Some("chain" | "list" | "tuple")) => {
            let each = args.iter().map(|(_, arg)| of_expr(init, arg, depth));
            each.collect::<Option<Vec<_>>>().map(|all| all.concat())
        }
        Expr::Binary(crate::ir::BinOp::Add, a, b) => {
            Some([of_expr(init, a, depth)?, of_expr(init, b, depth)?].concat())
        }
        // `m.parameters()` of a module that a loop around goes through.
        Expr::Call { callee, args, .. } if args.is_empty() => match &**callee {
            Expr::Attr(base, name) if name == "parameters" => match &**base {
                Expr::Local(local) => match init.defs(*local) {
                    [one] => match init.steps[*one].stmt {
                        Stmt::For { iter, .. } => walked(init, iter, depth),
                        _ => None,
                    },
                    _ => None,
                },
                own => near::own_attribute(init, own).map(|name| vec![name.clone()]),
            },
            _ => None,
        },
        other => own_names(init, other).filter(|names| names.len() == 1),
    }
}

/// Whether the project may split sequences whatever a flag says: it sets one to something else than off or what another one has.
fn may_split(lint: &Lint<'_>) -> bool {
    let sets = |text: &str| {
        near::ending(text, "sequence_parallel").any(|at| {
            let rest = text[at + "sequence_parallel".len()..].trim_start_matches(['"', '\'']).trim_start();
            let line = rest.lines().next().unwrap_or_default();
            let line = line.strip_prefix(":bool").or(line.strip_prefix(": bool")).unwrap_or(line).trim_start();
            let value = line.strip_prefix('=').filter(|v| !v.starts_with('=')).or(line.strip_prefix(':'));
            value.map(str::trim_start).is_some_and(|value| {
                let plain = value.starts_with("false") || value.starts_with("none") || value.is_empty();
                let word = value.split([',', ')', ' ']).next().unwrap_or_default();
                !plain && !word.ends_with("sequence_parallel")
            })
        }) || near::refusals(text).any(|line| line.contains("sequence_parallel"))
    };
    lint.project.modules.ids().any(|module| {
        let file = lint.project.file(module);
        lint.files[file].whole().contains("sequence_parallel") && sets(&near::bare(lint.files[file].whole()))
    })
}

/// Whether a line of the project divides a loss or gradients by what may be the number of tensor-parallel ranks.
fn divides(lint: &Lint<'_>) -> bool {
    let by_size = |line: &str| {
        let plain = line.replace("//", "");
        near::has_any(&plain, &["/", "div", "mul_(", "*"])
            && near::has_any(&plain, SIZES)
            && near::has_any(&plain, &["loss", "grad", "scal", "flat", "foreach"])
    };
    lint.project.modules.ids().any(|module| {
        let text = lint.files[lint.project.file(module)].whole();
        near::has_any(text, SIZES) && near::bare(text).lines().any(by_size)
    })
}

/// Whether a function that sums is called anywhere.
fn is_called(lint: &Lint<'_>, reducer: &Reducer) -> bool {
    let name = &lint.project.func(reducer.func).name;
    let says = |text: &str| near::words(text, name).filter(|at| !text[..*at].ends_with("def ")).count();
    lint.project.modules.ids().any(|module| says(lint.files[lint.project.file(module)].whole()) > 0)
}

/// Whether every line of the project that sets a mark sets it to `True`.
fn sets_true_alone(lint: &Lint<'_>, mark: &str) -> bool {
    let set = format!(".{mark} =");
    let plain = |line: &str| {
        let named = near::has_any(line, &["setattr(", "delattr("]) && line.contains(mark);
        let value =
            line.split_once(&set).map(|(_, value)| value.trim_start().strip_prefix('=').map_or(value, |_| "True"));
        (!named || line.contains("True)")) && value.is_none_or(|value| value.trim() == "True")
    };
    lint.project.modules.ids().all(|module| {
        let text = lint.files[lint.project.file(module)].whole();
        !text.contains(mark) || text.lines().map(|line| line.split('#').next().unwrap_or_default()).all(plain)
    })
}

/// The layer that takes all that a whole module of the object gives, and where; nothing if something else reads it, or the module is used otherwise.
fn fed<'a>(
    lint: &Lint<'a>,
    (init, forward): (&View<'a>, &Rc<View<'a>>),
    module: &Name,
    axes: &[Name],
) -> Option<(Name, Place)> {
    let class = near::class_of(forward)?;
    let made = near::assigned(init, class, module);
    let [(maker, _, value)] = made.as_slice() else { return None };
    let Expr::Call { callee, args, .. } = maker.expr(value) else { return None };
    let whole = callee.path().is_some_and(|path| path.starts_with("torch.nn.") || path.ends_with("Norm"));
    let divided = |e: &Expr| {
        matches!(e, Expr::Binary(..))
            || e.last_name().is_some_and(|n| near::has_any(n, &["local", "partition", "per_"]))
    };
    if !whole || args.iter().any(|(_, a)| a.any(&mut |e| divided(e))) || is_used_elsewhere(init, module) {
        return None;
    }
    let calls: Vec<_> = used(forward).into_iter().filter(|(name, ..)| *name == module).collect();
    let [(_, call, given)] = calls.as_slice() else { return None };
    // What is not followed may have cut the input.
    let from = near::reached(forward, given, |_| true);
    let plain = |local: &LocalId| forward.defs(*local).iter().all(|def| keeps(lint, forward, *def));
    if !from.iter().all(plain) {
        return None;
    }
    let flow = Flow { view: forward, axes, tensors: &|view, step| keeps(lint, view, step) };
    flow.ends_in_layer(*call)
}

/// Whether something speaks of a module of an object other than to make, mark or call it.
fn is_used_elsewhere(init: &View<'_>, module: &str) -> bool {
    let text = near::bare(init.file());
    let name = module.to_lowercase();
    let own = init.text(init.spot(init.func.span));
    let built = near::words(&near::bare(own), &name).count();
    let called = near::words(&text, &name)
        .filter(|at| text[at + name.len()..].starts_with('(') && text[..*at].ends_with("self."))
        .count();
    near::words(&text, &name).count() != built + called
}

/// Whether a step takes tensors as they are, and gives what each rank has alike if it is given such: arithmetic, methods of tensors, functions of torch and whole modules of the object.
fn keeps(lint: &Lint<'_>, view: &View<'_>, step: usize) -> bool {
    let own = |name: &str| {
        let class = near::class_of(view);
        let made = class.map(|class| near::assigned(view, class, name)).unwrap_or_default();
        !made.is_empty()
            && made.iter().all(|(maker, _, value)| match maker.expr(value) {
                Expr::Call { callee, .. } => {
                    callee.path().is_some_and(|path| path.starts_with("torch.nn.") || path.ends_with("Norm"))
                }
                _ => false,
            })
    };
    match view.steps[step].stmt {
        Stmt::Unpack { .. } => true,
        Stmt::Assign { value, .. } => match value {
            Rvalue::Use(_) | Rvalue::Binary { .. } | Rvalue::Unary { .. } | Rvalue::Item { .. } => true,
            Rvalue::Build { .. } => true,
            Rvalue::Attr { name, .. } => matches!(name.as_str(), "shape" | "dtype" | "device"),
            Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => own(name),
            Rvalue::CallMethod { name, .. } => lint.rules.tensor_method(name).is_some() && !view.may_communicate(value),
            Rvalue::Call { .. } => view.callee(value).is_some_and(|path| {
                path.starts_with("torch.")
                    && !path.starts_with("torch.distributed")
                    && !path.starts_with("torch.autograd")
            }),
            _ => false,
        },
        _ => false,
    }
}

/// How what a module gives goes on in a forward.
struct Flow<'f, 'a> {
    view: &'f Rc<View<'a>>,
    axes: &'f [Name],
    tensors: &'f dyn Fn(&View<'a>, usize) -> bool,
}

impl Flow<'_, '_> {
    /// The first layer over the axes that takes what a step makes, if nothing but such layers does.
    fn ends_in_layer(&self, call: usize) -> Option<(Name, Place)> {
        let mut found: Option<(Name, Place)> = None;
        let mut seen: FxHashSet<LocalId> = FxHashSet::default();
        let mut queue: Vec<LocalId> = self.view.binds(call).to_vec();
        while let Some(local) = queue.pop() {
            if !seen.insert(local) {
                continue;
            }
            for step in self.view.readers(local) {
                if let Some(layer) = self.layer(*step) {
                    found.get_or_insert((layer, self.view.place(self.view.steps[*step].id)));
                } else if (self.tensors)(self.view, *step) {
                    let tells = matches!(self.view.value(*step), Some(Rvalue::Attr { .. }));
                    queue.extend(self.view.binds(*step).into_iter().filter(|_| !tells));
                } else {
                    return None;
                }
            }
        }
        found
    }

    /// The layer over the axes that a step calls, if it sums the gradient of its input.
    fn layer(&self, step: usize) -> Option<Name> {
        let Some(Rvalue::CallMethod { base, name, .. }) = self.view.value(step) else { return None };
        let class = near::class_of(self.view).filter(|_| near::is_self(self.view, base))?;
        let rule: Arc<LayerRule> = kept_layer(self.view, class, name)?;
        (sums_gradient(&rule) && rule.default_group == self.axes).then(|| name.clone())
    }
}
