//! Types in words. In: local types, origins, collectives. Out: the notation of annotation comments, and what goes forward and backward.
//! Never: protocol types. Next: `hover.rs`.

use crate::rules::collective::DimRef;
use crate::rules::{CollectiveRule, Form, Pattern};
use crate::types::{AxisState, AxisType, LocalType, Spmd};

/// The axes of which something is known, with its notation.
pub fn axes(ty: &LocalType) -> Vec<(String, String)> {
    let known = ty.listed().filter(|(_, s)| !s.set.is_unknown() && !s.set.is_empty());
    known.map(|(axis, state)| (axis.shown().to_string(), state.notation())).collect()
}

/// `{dp: V, tp: S(0)}`; a type that holds on every axis stands alone.
pub fn notation(ty: &LocalType) -> Option<String> {
    let known = axes(ty);
    match known.as_slice() {
        [] if ty.rest.set.is_known() => Some(ty.rest.notation()),
        [] => None,
        many => {
            let parts: Vec<String> = many.iter().map(|(axis, one)| format!("{axis}: {one}")).collect();
            Some(format!("{{{}}}", parts.join(", ")))
        }
    }
}

/// The same for hints, which have little room: `S(0)@tp`.
pub fn short(ty: &LocalType) -> Option<String> {
    match axes(ty).as_slice() {
        [(axis, one)] => Some(format!("{one}@{axis}")),
        _ => notation(ty),
    }
}

/// The type of the gradient.
pub fn gradient(ty: &LocalType) -> Option<String> {
    let dual = |state: &AxisState| {
        let mut set = AxisType::EMPTY;
        state.set.members().for_each(|t| set = set.join(AxisType::from(t.dual())));
        AxisState { shard: state.shard.filter(|_| set == AxisType::V), ..AxisState::new(set) }
    };
    let mut out = LocalType::everywhere(dual(&ty.rest));
    for (axis, state) in ty.listed() {
        out.set(axis, dual(state));
    }
    notation(&out)
}

fn side(pattern: &Pattern) -> String {
    match &pattern.shard {
        Some(DimRef::At(n)) => format!("S({n})"),
        Some(DimRef::Argument(name)) => format!("S({name})"),
        None => pattern.set.to_string(),
    }
}

/// What a collective does forward and backward, a pair for each of its transitions.
pub fn pairs(rule: &CollectiveRule) -> Vec<(String, String)> {
    let transitions = rule.transitions.iter().map(|(_, t)| t).chain(match rule.form {
        Form::SrcDst => rule.legal.iter(),
        _ => [].iter(),
    });
    let mut out = Vec::new();
    for t in transitions {
        let forward = format!("{}: {} -> {}", rule.op, side(&t.source), side(&t.result));
        let back = backward(&rule.op, t.source.set, t.result.set);
        let backward = match rule.differentiable {
            false => "none: autograd does not see this call".to_string(),
            true => format!("{back}: {} -> {}", duals(&t.result), duals(&t.source)),
        };
        if !out.contains(&(forward.clone(), backward.clone())) {
            out.push((forward, backward));
        }
    }
    out
}

fn duals(pattern: &Pattern) -> String {
    let mut set = AxisType::EMPTY;
    pattern.set.members().for_each(|t| set = set.join(AxisType::from(t.dual())));
    match &pattern.shard {
        Some(_) => side(pattern),
        None => set.to_string(),
    }
}

/// The communication that takes a gradient back.
fn backward(op: &str, source: AxisType, result: AxisType) -> &'static str {
    let is = |set: AxisType, t: Spmd| set == AxisType::one(t);
    match op {
        "all_reduce" if is(result, Spmd::Replicate) => "all_reduce",
        "all_reduce" => "identity",
        "all_gather" if is(result, Spmd::Replicate) => "reduce_scatter",
        "all_gather" => "split",
        "reduce_scatter" => "all_gather",
        "all_to_all" => "all_to_all",
        "convert" | "redistribute" if is(source, Spmd::Invariant) && is(result, Spmd::Replicate) => "all_reduce",
        "convert" | "redistribute" if is(source, Spmd::Invariant) && is(result, Spmd::Varying) => "all_gather",
        "convert" | "redistribute" if source.contains(Spmd::Partial) && is(result, Spmd::Invariant) => "identity",
        "convert" | "redistribute" if source.contains(Spmd::Partial) && is(result, Spmd::Replicate) => "all_reduce",
        "convert" | "redistribute" if source.contains(Spmd::Partial) => "all_gather",
        "convert" | "redistribute" if source.contains(Spmd::Varying) && is(result, Spmd::Replicate) => "reduce_scatter",
        "convert" | "redistribute" if source.contains(Spmd::Varying) && is(result, Spmd::Invariant) => "split",
        "reinterpret" => "identity",
        _ => "local",
    }
}
