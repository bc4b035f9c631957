//! Where a split dim goes in a reshape of a tensor of which not all sizes are known. In: an operation, its rule, the texts of its arguments.
//! Out: the split dims of the result. Never: a dim that may be another one; a dim that is cut or merged with others. Next: `op_results.rs`,
//! `normalised.rs`.

use super::expr::CallArgs;
use super::machine::Machine;
use super::ops::OpCall;
use super::value::Value;
use crate::ir::{Const, StmtId};
use crate::rules::shapes::ShapeRule;
use crate::types::{LocalType, normalize_dim};

/// How a function that computes a loss of logits names what it does: there a tensor of unknown rank has dims before the classes.
const OF_LOGITS: &[&str] = &["cross_entropy", "log_softmax", "logits"];

impl Machine<'_> {
    /// The split dims after a reshape that keeps them, or puts them in another order; forgotten otherwise.
    pub(super) fn move_split(&self, id: StmtId, call: &OpCall<'_>, args: &CallArgs, local: &mut LocalType) {
        let rank = args.args.first().and_then(|a| self.tensor(&a.value)).and_then(|t| t.rank());
        match call.rule.shape {
            ShapeRule::Permute => match self.order_of(call, args) {
                Some(order) => local.map_shards(|d| {
                    let from = normalize_dim(i64::from(d), order.len())?;
                    counted(order.iter().position(|at| *at == from)?, order.len())
                }),
                None => local.forget_shards(),
            },
            ShapeRule::Chunk | ShapeRule::Split => {
                let of = given(call, args, "dim");
                let along = if of.is_some() { of.and_then(Value::as_int) } else { Some(0) };
                local.map_shards(|d| (along.is_some_and(|along| differs(i64::from(d), along, rank))).then_some(d));
            }
            ShapeRule::Transpose if self.is_of_logits() => {
                let dims = [given(call, args, "dim0"), given(call, args, "dim1")].map(|d| d.and_then(Value::as_int));
                local.map_shards(|d| swapped(d, dims));
            }
            ShapeRule::None if call.rule.name.ends_with(".rearrange") => {
                let pattern = given(call, args, "pattern").and_then(Value::as_str).and_then(|p| p.split_once("->"));
                let sides = pattern.map(|(from, to)| (places(from), places(to)));
                local.map_shards(|d| {
                    let (from, to) = sides.as_ref()?;
                    let name = *from.get(normalize_dim(i64::from(d), from.len())?)?;
                    let plain = !name.contains(['(', '.']) && !from.iter().any(|place| place.contains("..."));
                    counted(to.iter().position(|place| *place == name).filter(|_| plain)?, to.len())
                });
            }
            _ if is_split_last(local, rank) && self.keeps_last_dim(id, call, args, rank) => {
                local.map_shards(|d| is_last(d, rank).then_some(-1));
            }
            _ => local.forget_shards(),
        }
    }

    /// The dims in the order in which a permutation takes them.
    fn order_of(&self, call: &OpCall<'_>, args: &CallArgs) -> Option<Vec<usize>> {
        let dims: Vec<i64> = match args.args.get(1..)? {
            [one] if one.value.as_int().is_none() => {
                self.literal_items(&one.value)?.iter().map(Value::as_int).collect::<Option<_>>()?
            }
            many => many.iter().map(|a| a.value.as_int()).collect::<Option<_>>()?,
        };
        let order: Vec<usize> = dims.iter().map(|d| normalize_dim(*d, dims.len())).collect::<Option<_>>()?;
        let whole = (0..order.len()).all(|dim| order.contains(&dim));
        (whole && !args.open && !call.lost).then_some(order)
    }

    /// Whether the function under execution computes a loss of logits.
    fn is_of_logits(&self) -> bool {
        let text = self.files[self.file()].slice(self.func().span);
        OF_LOGITS.iter().any(|word| text.contains(word))
    }

    /// Whether a reshape or a slice leaves the last dim of its first argument as it is: `x.view(-1, x.size(-1))`, `x.flatten(0, 1)`,
    /// `x[..., :-1, :]`, `x[:, :-1]`.
    fn keeps_last_dim(&self, id: StmtId, call: &OpCall<'_>, args: &CallArgs, rank: Option<usize>) -> bool {
        match call.rule.shape {
            ShapeRule::View => self.ends_with_own_size(id, args) || self.ends_with_classes(id, args),
            ShapeRule::Flatten => match given(call, args, "end_dim").and_then(Value::as_int) {
                Some(-2) => true,
                Some(end) => end == 1 && rank.is_none() || rank.is_some_and(|rank| end >= 0 && end + 1 < rank as i64),
                None => false,
            },
            ShapeRule::Squeeze => given(call, args, "dim").and_then(Value::as_int).is_some_and(|dim| dim >= 0),
            ShapeRule::Getitem => match args.args.get(1).map(|a| &a.value) {
                Some(Value::Tuple(items)) => keeps_last(items) || self.is_of_logits() && is_shifted(items, rank),
                // A mask, or positions.
                Some(Value::Tensor(_) | Value::Sym(_) | Value::Unknown) => self.is_of_logits(),
                Some(Value::Slice(_) | Value::Const(Const::Int(_))) => rank.is_some_and(|rank| rank > 1),
                _ => false,
            },
            _ => false,
        }
    }

    /// The last of two sizes is the number of classes, in the words of the source: `logits.view(-1, self.vocab_size)`.
    fn ends_with_classes(&self, id: StmtId, args: &CallArgs) -> bool {
        let [_, first, last] = args.args.as_slice() else { return false };
        first.value.as_int() == Some(-1) && self.words(id, last).contains("vocab") && self.is_of_logits()
    }
}

fn given<'a>(call: &OpCall<'_>, args: &'a CallArgs, name: &str) -> Option<&'a Value> {
    let at = call.bound.first(call.rule.args.index(name)?)?;
    Some(&args.args.get(at)?.value)
}

/// A dim of several; the last one is counted from the end, as where their number is not known.
fn counted(dim: usize, dims: usize) -> Option<i8> {
    if dim + 1 == dims { Some(-1) } else { i8::try_from(dim).ok() }
}

/// The dims on one side of a pattern: names, and names in brackets.
fn places(side: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = side.trim();
    while !rest.is_empty() {
        let end = match rest.starts_with('(') {
            true => rest.find(')').map_or(rest.len(), |at| at + 1),
            false => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        let (place, behind) = rest.split_at(end);
        out.push(place);
        rest = behind.trim_start();
    }
    out
}

/// Whether two dims are known to be different ones.
fn differs(split: i64, other: i64, rank: Option<usize>) -> bool {
    match rank {
        Some(rank) => normalize_dim(split, rank).zip(normalize_dim(other, rank)).is_some_and(|(a, b)| a != b),
        None => split.signum() == other.signum() && split != other || (split, other) == (-1, 0),
    }
}

/// A dim after two were exchanged in a tensor with one or two dims before the last one.
fn swapped(d: i8, dims: [Option<i64>; 2]) -> Option<i8> {
    let [Some(a), Some(b)] = dims else { return None };
    let (low, high) = (a.min(b), a.max(b));
    match (i64::from(d), low, high) {
        (-1, 0, 1) => Some(-1),
        (-1, 1, 2) => Some(1),
        (-1, -2, -1) => Some(-2),
        (-2, -2, -1) => Some(-1),
        _ => None,
    }
}

/// Whether the last dim is one that is split.
fn is_split_last(local: &LocalType, rank: Option<usize>) -> bool {
    local.listed().any(|(_, s)| s.shard.is_some_and(|d| is_last(d, rank)))
}

fn is_last(d: i8, rank: Option<usize>) -> bool {
    d == -1 || rank.is_some_and(|rank| i64::from(d) + 1 == rank as i64)
}

/// `[..., :-1, :]`, `[:, -1, :]`: the last dim is taken as a whole.
fn keeps_last(items: &[Value]) -> bool {
    let plain = |i: &Value| matches!(i, Value::Slice(_) | Value::Const(Const::Ellipsis | Const::Int(_) | Const::None));
    items.len() > 1 && items.last().is_some_and(is_full) && items.iter().all(plain)
}

/// `[:, :-1]`, `[:, 1:]`: all positions but the last one, or the first, of a tensor with more dims.
fn is_shifted(items: &[Value], rank: Option<usize>) -> bool {
    let [first, second] = items else { return false };
    let one_off = |i: &Value| match i {
        Value::Slice(parts) => {
            let [start, end, step] = &**parts;
            let ends = (start.is_none(), end.is_none(), start.as_int(), end.as_int());
            step.is_none() && matches!(ends, (true, false, _, Some(-1)) | (false, true, Some(1), _))
        }
        _ => false,
    };
    is_full(first) && one_off(second) && rank.is_none_or(|rank| rank > 2)
}

/// `:`
fn is_full(index: &Value) -> bool {
    matches!(index, Value::Slice(parts) if parts.iter().all(Value::is_none))
}
