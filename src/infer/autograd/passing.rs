//! Groups that are equal only to themselves, as arguments of an autograd function: made where they are given, or returned by a call that nothing
//! resolves. In: arguments. Out: the same with a group that goes by its name alone, so that one derivation serves all of them; and its cases over
//! the group that is given. Never: two such groups in one call, which a name does not tell apart. Next: `apply.rs`.

use super::derive::Case;
use crate::infer::expr::CallArgs;
use crate::infer::groups::is_passing;
use crate::infer::value::Value;
use crate::source::Name;
use crate::types::{Axis, AxisSet};
use std::borrow::Cow;

/// The axis that a derivation knows, and that of the group that is given.
pub type Own = (Axis, Axis);

/// The arguments with the one group that is equal only to itself under its name; where there are several, nothing is said of them.
pub fn alike(args: &CallArgs) -> (Option<CallArgs>, Option<Own>) {
    let path = |value: &Value| match value {
        Value::Sym(path) if is_passing(value) => Some(path.clone()),
        _ => None,
    };
    let mut passing: Vec<Name> = args.args.iter().filter_map(|arg| path(&arg.value)).collect();
    if passing.is_empty() {
        return (None, None);
    }
    passing.dedup();
    let called = match passing.as_slice() {
        [one] => one.split('#').next().map(Name::from).filter(|name| {
            let same =
                |value: &Value| matches!(value, Value::Sym(other) if other.trim_start_matches('?') == &name[1..]);
            !args.args.iter().any(|arg| same(&arg.value))
        }),
        _ => None,
    };
    let mut out = args.clone();
    for arg in out.args.iter_mut().filter(|arg| is_passing(&arg.value)) {
        arg.value = called.clone().map_or(Value::Unknown, Value::Sym);
    }
    let axis = |name: &str| Axis::variable(name.trim_start_matches('?'));
    let own = called.map(|name| (axis(&name), axis(&passing[0])));
    (Some(out), own)
}

/// A case over the group that is given.
pub fn over<'c>(case: &'c Case, own: Option<&Own>) -> Cow<'c, Case> {
    let Some((known, given)) = own.filter(|(known, _)| case.axes.contains(known)) else { return Cow::Borrowed(case) };
    let axes: AxisSet = case.axes.iter().map(|axis| if axis == known { given } else { axis }).cloned().collect();
    Cow::Owned(Case { axes, ..case.clone() })
}
