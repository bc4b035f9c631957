//! Gathers whose backward sums what every rank computes alike. In: a function. Out: a differentiable gather that takes the gradient for parts,
//! where a comment says that all ranks compute the same of what it gives, and its result is cut into the ranks' parts again. Never: a gather that
//! is told so, anything that communicates between the two, or a layer with a rule. Source: slime, pull request 1748; Megatron-LM,
//! `gather_from_sequence_parallel_region`: without `tensor_parallel_output_grad=False` its backward reduce-scatters. Next: `plain_input.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near::{self, Note};
use super::view::{CollectiveCall, View};
use crate::ir::{ArgKind, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::rules::Entry;
use crate::source::{Name, Place, Span};
use crate::types::{AxisType, Spmd};

/// What comments say of code that every rank runs alike.
const ALIKE: &[&str] = &[
    "not sharded below",
    "computed in duplicate",
    "duplicated on",
    "duplicate computation",
    "duplicated computation",
    "every rank computes all",
    "each rank computes all",
    "holds the full weights",
    "full weights and",
    "every tp rank computes",
    "each tp rank computes",
    "each tp rank holds the full",
    "every tp rank holds the full",
    "not tensor parallel",
    "not tensor-parallel",
    "whole on every tp rank",
    "redundantly on",
];

/// What comments say of a layer that every rank has in full.
const WHOLE: &[&str] = &["replicated", "not sharded", "whole on every", "full on every", "not split", "duplicated"];

/// How a function says that there is no gradient, or that it is scaled.
const SCALED: &[&str] = &["is_grad_enabled", "no_grad", "inference_mode", ".detach()", "register_hook", "scale"];

/// `h = gather(h)`, all ranks alike, `scatter(out)`
pub fn summed(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let Some(argument) = told_by(view, call) else { continue };
        if view.without_gradient(*i) || near::is_unrecorded(view) || near::has_any(&view.code().to_lowercase(), SCALED)
        {
            continue;
        }
        let Stmt::Assign { dst, .. } = view.steps[*i].stmt else { continue };
        let cut = || {
            let (cut, axes) = cut_again(view, *i, *dst)?;
            Some((cut, axes, said(view)?, None))
        };
        let whole = || {
            let (used, said, layer) = whole_layer(view, *i, *dst)?;
            Some((used, call.rule.default_group.clone(), said, Some(layer)))
        };
        let Some((cut, over, said, layer)) = cut().or_else(whole) else { continue };
        let collective = super::lost::last(&call.rule.name);
        let cut = view.place(view.steps[cut].id);
        let mistake = Membership::CopiesGathered { collective, argument, over, cut, said, layer };
        out.push((view.place(view.steps[*i].id), Practice::Membership(mistake)));
        return;
    }
}

/// The argument that tells a gather that its result is used alike on all ranks, if it is not given.
fn told_by<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> Option<Name> {
    let rule = &call.rule;
    if rule.op != "all_gather" || !rule.differentiable {
        return None;
    }
    let alike = rule.transitions.iter().find_map(|(when, t)| when.as_ref().filter(|_| t.result.set == AxisType::I))?;
    let otherwise = rule.transitions.iter().any(|(when, t)| when.is_none() && t.result.set == AxisType::R);
    let name = rule.args.params.get(alike.0)?.name.clone();
    let given = view.argument(call.args, alike.0, &name);
    let plain = given.is_none_or(|o| *o == Operand::Const(Const::Bool(true)))
        && !call.args.iter().any(|a| matches!(a.kind, ArgKind::DoubleStar | ArgKind::Star));
    (otherwise && plain).then_some(name)
}

/// The step that cuts what comes of a gather into parts, and its axes, if nothing communicates between.
fn cut_again(view: &View<'_>, gather: usize, whole: LocalId) -> Option<(usize, Vec<Name>)> {
    let cuts = |call: &CollectiveCall<'_>| {
        call.rule.transitions.iter().any(|(_, t)| {
            t.source.set.contains(Spmd::Invariant)
                && (t.result.any_shard || t.result.shard.is_some())
                && call.rule.op != "all_gather"
        })
    };
    let collectives = view.collectives();
    let (cut, call) = collectives.iter().find(|(at, _)| *at > gather)?;
    let from = |o: &Operand| near::comes_from(view, o, whole, gather);
    let own = cuts(call) && call.input.is_some_and(from) && collectives.len() == 2;
    let layered = (gather + 1..*cut).any(|s| match view.value(s) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            matches!(view.ruled(value), Some((_, Some(Entry::Layer(_) | Entry::Collective(_)))))
        }
        _ => false,
    });
    (own && !layered).then(|| (*cut, call.rule.default_group.clone()))
}

/// The layer that alone reads what is gathered, of which a comment says that it is whole on every rank, and whose output is returned.
fn whole_layer(view: &View<'_>, gather: usize, whole: LocalId) -> Option<(usize, Place, Name)> {
    if view.collectives().iter().any(|(at, _)| *at > gather) {
        return None;
    }
    let class = near::class_of(view)?;
    let from = |o: &Operand| near::comes_from(view, o, whole, gather);
    let (used, name) = (gather + 1..view.steps.len()).find_map(|step| match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if near::is_self(view, base) => {
            matches!(&**args, [one] if from(&one.value)).then_some((step, name))
        }
        _ => None,
    })?;
    let set = near::assigned(view, class, name);
    let [(method, made, value)] = set.as_slice() else { return None };
    let Expr::Call { callee, .. } = method.expr(value) else { return None };
    let torch = callee.path().is_some_and(|path| path.starts_with("torch.nn."));
    let made = method.place(method.steps[*made].id);
    let line = |place: Place| view.files[place.file].position(place.span.start).line;
    let span = view.project.class(ClassRef { module: view.at.module, class }).span;
    let beside = near::comments(method, span).into_iter().filter_map(|note| Some((note.place?, note.text)));
    let said = beside
        .into_iter()
        .find(|(place, text)| line(*place) == line(made) && WHOLE.iter().any(|word| text.contains(word)));
    let returned = view.steps[used + 1..].iter().all(|step| match step.stmt {
        Stmt::Return { value } => from(value),
        _ => true,
    });
    (torch && returned).then(|| Some((used, said?.0, name.clone())))?
}

/// The comment in the class that says that all ranks compute alike.
fn said(view: &View<'_>) -> Option<Place> {
    let span = match near::class_of(view) {
        Some(class) => view.project.class(ClassRef { module: view.at.module, class }).span,
        None => view.func.span,
    };
    let speaks = |note: &Note| ALIKE.iter().any(|phrase| note.text.contains(phrase));
    near::comments(view, span).into_iter().find(speaks).map_or_else(|| documented(view, span), |note| note.place)
}

/// Where a docstring inside a span says so.
fn documented(view: &View<'_>, span: Span) -> Option<Place> {
    let text = view.files[view.project.file(view.at.module)].slice(span);
    let mut from = 0;
    // Every second part stands between quotes.
    for (at, part) in text.split("\"\"\"").enumerate() {
        let lower = part.to_lowercase();
        let said = ALIKE.iter().find_map(|phrase| Some((lower.find(phrase)?, phrase.len())));
        if let Some((start, length)) = said.filter(|_| at % 2 == 1 && lower.len() == part.len()) {
            let start = span.start + (from + start) as u32;
            return Some(view.spot(Span::new(start, start + length as u32)));
        }
        from += part.len() + 3;
    }
    None
}
