//! Backwards of autograd functions against their forwards, from the text alone. In: a class. Out: a gradient that is computed where another
//! input needs one; sizes of parts that the backward sends as the forward has sent them. Never: conditions that are not read, or sizes that
//! are computed. Source: torch.autograd.Function, `needs_input_grad`; torch.distributed, `all_to_all_single`. Next: `mod.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::gradient::target;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{ArgKind, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};

/// Mistakes of backwards.
#[derive(Clone, Debug, PartialEq)]
pub enum Backwards {
    /// The gradient of one input is computed where another one needs a gradient; their numbers, and where it is returned.
    OtherInput { class: Name, input: usize, asked: usize, returned: Place },
    /// An exchange whose sizes of what is sent and what is received are those of the forward, in the same places.
    SameSizes { class: Name, sent: Name, received: Name, forward: Place },
    /// One direction communicates over a group that the function is given, and the other over all ranks.
    GroupLeftOut { class: Name, group: Name, with: Place, in_backward: bool },
    /// The backward communicates over all ranks, and nothing asks for the group that its forward keeps; where it keeps it.
    KeptGroupLeftOut { class: Name, group: Name, kept: Place },
    /// It gives each rank its own part of the gradient of a loss that all of them have, and a wrapper averages over these ranks; where it gathers
    /// for the loss.
    PartAveraged { class: Name, group: Name, gathered: Place, passed: Place, wrapped: Place },
    /// A gradient is returned on the way, which is summed over ranks afterwards.
    EarlyReturn { class: Name, gradient: Name, collective: Name, summed: Place },
    /// It takes a weighted mean over ranks, and its backward does not look at the weight; where the forward multiplies by it.
    WeightLeft { class: Name, weight: Name, weighed: Place },
    /// It hands on the gradient of what another rank has sent; the gradient, and where the forward receives.
    NeighbourKept { class: Name, gradient: Name, received: Place },
    /// It hands back the part of the gradient of a whole input that this rank's rows of a weight give; what shows that they are parts, and where it is
    /// made.
    InputNotSummed { class: Name, input: Name, weight: Name, reduced: Place, made: Place },
    /// It sums the gradient of an input that a part of a weight gives where a flag is set, and not where it is unset; where the forward gathers
    /// the input under the flag, and where a layer with a part of the weight calls it.
    SummedInOneMode {
        class: Name,
        input: Name,
        weight: Name,
        flag: Name,
        tested: Place,
        gathered: Place,
        called: Place,
    },
    /// It scales gradients, and its counterpart, which undoes that, is applied nowhere; by what, and where that one is defined.
    Unpaired { class: Name, other: Name, factor: Name, multiplies: bool, defined: Place },
    /// Activations are cut like data; the autograd function that would gather their gradient, and where the parts are gathered.
    PlainSplit { value: Name, class: Name, made: Place, gathered: Place, cut: Option<Place> },
    /// What a module is given, alike on all ranks of a group, or what a submodule gives, is cut like data; where the parts are gathered, and where the
    /// gradients of other submodules alone are summed.
    PlainInputSplit { input: Name, gathered: Place, summed: Option<Place> },
}

/// The attribute of the context that says which inputs need a gradient.
const NEEDS: &str = "needs_input_grad";

/// Gradients whose condition asks for another input, where that input's own gradient goes by another condition as well.
pub(super) fn other_input<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((_, backward)) = methods(lint, class) else { return };
    let text = lint.files[lint.project.file(class.at.module)].slice(lint.project.func(backward).span);
    if !text.contains(NEEDS) {
        return;
    }
    let view = lint.view(backward);
    for step in &view.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) = view.source(value) else { continue };
        let asked: Vec<Option<(Vec<usize>, Place)>> = items
            .iter()
            .map(|item| match item {
                Item::One(Operand::Local(local)) => asked_for(&view, *local),
                _ => None,
            })
            .collect();
        if items.iter().any(|item| matches!(item, Item::Star(_))) {
            continue;
        }
        let others = |at: usize| asked.get(at).and_then(|a| a.as_ref()).filter(|(inputs, _)| !inputs.contains(&at));
        for at in 0..asked.len() {
            let Some((inputs, place)) = others(at) else { continue };
            let swapped = inputs.iter().copied().find(|other| others(*other).is_some() || *other >= asked.len());
            if let Some(other) = swapped {
                let class = lint.project.class(class.at).name.clone();
                let returned = view.place(step.id);
                let mistake = Backwards::OtherInput { class, input: at, asked: other, returned };
                out.push((*place, Practice::Backwards(mistake)));
                break;
            }
        }
    }
}

/// The inputs whose need for a gradient decides whether a variable is set, and where it is; nothing unless that is all that decides.
fn asked_for(view: &View<'_>, local: LocalId) -> Option<(Vec<usize>, Place)> {
    if view.is_param(local) {
        return None;
    }
    let (mut inputs, mut first) = (Vec::new(), None);
    for def in view.defs(local) {
        if view.bound(*def, local).is_none() {
            continue;
        }
        let mut own = Vec::new();
        for guard in view.steps[*def].guards.iter() {
            let test = near::deep(view, &view.expr(guard.test));
            if !test.any(&mut |e| matches!(e, Expr::Attr(_, name) if name == NEEDS)) {
                continue;
            }
            let negated = test.any(&mut |e| matches!(e, Expr::Unary(UnOp::Not, _)));
            if negated || !guard.holds {
                return None;
            }
            test.any(&mut |e| {
                if let Expr::Item(base, index) = e
                    && matches!(base.as_ref(), Expr::Attr(_, name) if name == NEEDS)
                    && let Expr::Const(Const::Int(n)) = index.as_ref()
                    && let Ok(n) = usize::try_from(*n)
                {
                    own.push(n);
                }
                false
            });
        }
        if own.is_empty() {
            return None;
        }
        inputs.extend(own);
        first.get_or_insert(view.place(view.steps[*def].id));
    }
    first.map(|place| (inputs, place))
}

/// An exchange of parts of given sizes.
struct Sizes {
    received: Expr,
    sent: Expr,
    place: Place,
}

/// Exchanges of the backward that take the sizes as the forward takes them.
pub(super) fn same_sizes<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((forward, backward)) = methods(lint, class) else { return };
    if !lint.files[lint.project.file(class.at.module)].whole().contains("all_to_all") {
        return;
    }
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    let stored = stored(&forward);
    let exchanges = sizes(lint, &forward, 0);
    let [made] = exchanges.as_slice() else { return };
    if made.sent == made.received || !(is_given(&forward, &made.sent) && is_given(&forward, &made.received)) {
        return;
    }
    let name = |e: &Expr| match e {
        Expr::Local(local) => forward.local_name(*local).clone(),
        _ => Name::from("sizes"),
    };
    let mut undone = sizes(lint, &backward, 0);
    undone.extend(again(lint, class, &backward, &forward, made));
    for found in undone {
        let known = |e: &Expr| match e {
            Expr::Attr(base, attr) if is_first(&backward, base) => {
                let mut of = stored.iter().filter(|(n, _)| n == attr);
                let (first, second) = (of.next(), of.next());
                first.filter(|_| second.is_none()).map(|(_, value)| value.clone())
            }
            _ => None,
        };
        if known(&found.sent).as_ref() == Some(&made.sent) && known(&found.received).as_ref() == Some(&made.received) {
            let mistake = Backwards::SameSizes {
                class: lint.project.class(class.at).name.clone(),
                sent: name(&made.sent),
                received: name(&made.received),
                forward: made.place,
            };
            out.push((found.place, Practice::Backwards(mistake)));
        }
    }
}

/// Exchanges of the backward by the function itself, which is applied to the gradient with sizes of its own.
fn again(lint: &Lint<'_>, class: &Class<'_>, backward: &View<'_>, forward: &View<'_>, made: &Sizes) -> Vec<Sizes> {
    let own = lint.project.qualified_class(class.at);
    let place_of = |e: &Expr| {
        let at = forward.func.params.iter().position(|p| matches!(e, Expr::Local(l) if *l == p.local))?;
        // The context is given by autograd.
        at.checked_sub(1)
    };
    let (Some(received), Some(sent)) = (place_of(&made.received), place_of(&made.sent)) else { return Vec::new() };
    let mut out = Vec::new();
    for step in 0..backward.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = backward.value(step) else {
            continue;
        };
        let applies = backward.callee(value).is_some_and(|p| p.strip_suffix(".apply") == Some(own.as_str()));
        let plain = args.iter().all(|a| a.kind == ArgKind::Positional);
        if let (true, true, Some(received), Some(sent)) = (applies, plain, args.get(received), args.get(sent)) {
            let (received, sent) = (backward.through(&received.value), backward.through(&sent.value));
            out.push(Sizes { received, sent, place: backward.place(backward.steps[step].id) });
        }
    }
    out
}

/// Whether sizes are an argument of the function, as it is given.
fn is_given(view: &View<'_>, e: &Expr) -> bool {
    matches!(e, Expr::Local(local) if view.is_as_given(*local))
}

/// What a forward keeps on its context.
pub(super) fn stored(view: &View<'_>) -> Vec<(Name, Expr)> {
    let mut out = Vec::new();
    for step in &view.steps {
        if let Stmt::SetAttr { base, name, value } = step.stmt
            && is_first(view, &view.expr(base))
        {
            out.push((name.clone(), view.through(value)));
        }
    }
    out
}

fn is_first(view: &View<'_>, e: &Expr) -> bool {
    let first = view.func.params.first().map(|p| p.local);
    matches!(e, Expr::Local(local) if Some(*local) == first)
}

/// The exchanges of a function that name the sizes of both sides, also those of a function of the project that it hands them to.
fn sizes<'a>(lint: &Lint<'a>, view: &View<'a>, depth: usize) -> Vec<Sizes> {
    let mut out = Vec::new();
    for step in 0..view.steps.len() {
        let Some(value) = view.value(step) else { continue };
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { continue };
        let place = view.place(view.steps[step].id);
        if let Some(call) = view.collective(value) {
            let keyword = |a: &ArgKind| match a {
                ArgKind::Keyword(name) => Some(name.clone()),
                _ => None,
            };
            let keywords: Vec<Option<Name>> = call.args.iter().map(|a| keyword(&a.kind)).collect();
            let keywords: Vec<Option<&Name>> = keywords.iter().map(Option::as_ref).collect();
            let bound = call.rule.args.bind(&keywords);
            let of = |name: &str| {
                let at = bound.first(call.rule.args.index(name)?)?;
                call.args.get(at).map(|a| view.through(&a.value))
            };
            if let (Some(received), Some(sent)) = (of("output_split_sizes"), of("input_split_sizes")) {
                out.push(Sizes { received, sent, place });
            }
            continue;
        }
        if depth > 0 || args.iter().any(|a| a.kind != ArgKind::Positional) {
            continue;
        }
        let Some((at, false)) = target(lint, view, value) else { continue };
        if !communicates(lint, at) {
            continue;
        }
        let helper = lint.view(at);
        let inner = sizes(lint, &helper, depth + 1);
        let [inner] = inner.as_slice() else { continue };
        let given = |e: &Expr| {
            let Expr::Local(local) = e else { return None };
            let at = helper.func.params.iter().position(|p| p.local == *local).filter(|_| is_given(&helper, e))?;
            args.get(at).map(|a| view.through(&a.value))
        };
        if let (Some(received), Some(sent)) = (given(&inner.received), given(&inner.sent)) {
            out.push(Sizes { received, sent, place });
        }
    }
    out
}

fn communicates(lint: &Lint<'_>, at: FuncRef) -> bool {
    let text = lint.files[lint.project.file(at.module)].slice(lint.project.func(at).span);
    text.contains("all_to_all")
}

/// Forward and backward of an autograd function that keeps its context itself.
fn methods(lint: &Lint<'_>, class: &Class<'_>) -> Option<(FuncRef, FuncRef)> {
    let pair = both_ways(lint, class.at)?;
    let plain = !lint.project.class(class.at).methods.iter().any(|(name, _)| name == "setup_context");
    (plain && lint.is_autograd(class.at)).then_some(pair)
}

/// The forward and the backward of a class that has both.
pub(super) fn both_ways(lint: &Lint<'_>, class: ClassRef) -> Option<(FuncRef, FuncRef)> {
    let method = |wanted: &str| {
        let (_, func) = lint.project.class(class).methods.iter().find(|(name, _)| name == wanted)?;
        Some(FuncRef { module: class.module, func: *func })
    };
    Some((method("forward")?, method("backward")?))
}
