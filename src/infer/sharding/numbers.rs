//! Numbers and arrays of them: ranges, fills, products, and the sizes given to a factory of tensors. In: arguments. Out: values.
//! Never: floats. Next: `mesh.rs`.

use super::call::{Args, keyword};
use super::eval::{MAX_ITEMS, ids};
use super::value::{Ids, Val};
use crate::ir::{ArgKind, Const};
use crate::rules::{OpRule, Signature};
use crate::source::Name;

/// The sizes given to a factory: one sequence, or numbers.
pub fn shape(rule: &OpRule, args: &Args) -> Option<Vec<Option<i64>>> {
    let at = rule.args.index("size")?;
    let keywords: Vec<Option<&Name>> = args.all.iter().map(|g| keyword(&g.kind)).collect();
    let bound = rule.args.bind(&keywords);
    let values: Vec<&Val> = bound.all(at).iter().filter_map(|i| args.all.get(*i)).map(|g| &g.value).collect();
    let sequence = |v: &Val| v.items().map(|items| items.iter().map(Val::int).collect());
    match values.as_slice() {
        [Val::Const(Const::Int(n))] => Some(vec![Some(*n)]),
        [one] => sequence(one),
        [] => None,
        many => Some(many.iter().map(|v| v.int()).collect()),
    }
}

/// `range(stop)`, `range(start, stop)`
pub fn range(args: &[&Val]) -> Val {
    let (from, to) = match args {
        [Val::Devices(n)] => return Val::Ids(Ids::First(*n)),
        [to] => (Some(0), to.int()),
        [from, to] => (from.int(), to.int()),
        _ => (None, None),
    };
    let (Some(from), Some(to)) = (from, to) else { return Val::Unknown };
    let count = to.checked_sub(from).and_then(|n| usize::try_from(n.max(0)).ok());
    if count.is_none_or(|n| n > MAX_ITEMS) {
        return Val::Unknown;
    }
    Val::Ids(Ids::Listed((from..to).collect()))
}

/// Functions that make or reduce arrays of numbers.
pub fn number(does: &str, signature: &Signature, args: &Args) -> Val {
    if args.open {
        return Val::Unknown;
    }
    let first = args.all.first().filter(|g| g.kind == ArgKind::Positional).map(|g| &g.value);
    match (does, first) {
        ("array", Some(value)) => ids(value).map_or(Val::Unknown, Val::Ids),
        ("range", Some(_)) => {
            let numbers: Vec<&Val> = ["start", "stop", "step"]
                .iter()
                .map_while(|n| args.index(signature, n).and_then(|i| args.all.get(i)))
                .map(|g| &g.value)
                .collect();
            range(&numbers)
        }
        ("fill", Some(value)) => match value.int().and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n <= MAX_ITEMS => Val::Ids(Ids::Listed(vec![0; n].into())),
            _ => Val::Unknown,
        },
        ("product", Some(value)) => product(&value.items().unwrap_or_default()).unwrap_or(Val::Unknown),
        _ => Val::Unknown,
    }
}

/// The product of numbers, at most one of which is the number of devices.
pub fn product(items: &[Val]) -> Option<Val> {
    if items.is_empty() {
        return None;
    }
    let mut total: i64 = 1;
    let mut devices = false;
    for item in items {
        match item {
            Val::Devices(n) if !devices => {
                total = total.checked_mul(*n)?;
                devices = true;
            }
            other => total = total.checked_mul(other.int()?)?,
        }
    }
    match (devices, total > 0) {
        (true, true) => Some(Val::Devices(total)),
        (true, false) => None,
        (false, _) => Some(Val::number(total)),
    }
}
