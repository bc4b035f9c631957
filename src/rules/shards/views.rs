//! Operations that move elements: views, joins, parts, subscripts. In: a call. Out: where the split dim goes.
//! Never: values. Source: torch 2.15 `torch.distributed.tensor._ops._view_ops`, `_tensor_ops`. Next: `whole.rs`.

use super::{Index, Piece, Placed, Refusal, ShardCall, named};
use crate::rules::shapes::{Given, ShapeRule};
use crate::types::{Dim, normalize_dim};

pub(super) fn moved(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    match call.rule.shape {
        ShapeRule::Cat => return joined(call, false),
        ShapeRule::Stack => return joined(call, true),
        ShapeRule::Embedding => return looked_up(call),
        ShapeRule::Gather | ShapeRule::IndexSelect => return selected(call),
        _ => {}
    }
    let Some(piece) = call.pieces.first() else { return Ok(Placed::Unknown) };
    let Some(shard) = piece.shard else { return Ok(Placed::Unknown) };
    let rank = piece.shape.rank();
    let dim = |name: &str| int(call, name).and_then(|d| normalize_dim(d, rank));
    let keep = |place: Option<usize>| Ok(place.map_or(Placed::Unknown, Placed::Split));
    match call.rule.shape {
        ShapeRule::Transpose => keep(dim("dim0").zip(dim("dim1")).map(|(a, b)| swapped(shard, a, b))),
        ShapeRule::T | ShapeRule::Mt if rank < 2 => keep(Some(shard)),
        ShapeRule::Reversed => keep(Some(rank - 1 - shard)),
        ShapeRule::T | ShapeRule::Mt => keep(Some(swapped(shard, rank - 2, rank - 1))),
        ShapeRule::Permute => keep(
            sizes(call)
                .and_then(|dims| dims.iter().position(|d| d.and_then(|d| normalize_dim(d, rank)) == Some(shard))),
        ),
        ShapeRule::Squeeze => keep(squeezed(call, piece, shard)),
        ShapeRule::Unsqueeze => {
            let at = int(call, "dim").and_then(|d| normalize_dim(d, rank + 1));
            keep(at.map(|at| if shard >= at { shard + 1 } else { shard }))
        }
        ShapeRule::View => match sizes(call) {
            Some(to) => reshaped(call, piece, shard, &to),
            None => Ok(Placed::Unknown),
        },
        ShapeRule::ViewAs => match call.pieces.get(1) {
            Some(like) if like.shape == piece.shape => match like.shard {
                Some(other) if other == shard => Ok(Placed::Split(shard)),
                Some(_) => Ok(Placed::Unknown),
                None => Err(Refusal::OtherWhole(1)),
            },
            _ => Ok(Placed::Unknown),
        },
        ShapeRule::Unflatten => unflattened(call, rank, shard),
        ShapeRule::Movedim => {
            let ends = dim("source").zip(dim("destination"));
            keep(ends.map(|(from, to)| {
                let mut order: Vec<usize> = (0..rank).filter(|d| *d != from).collect();
                order.insert(to, from);
                order.iter().position(|d| *d == shard).unwrap_or(shard)
            }))
        }
        ShapeRule::Pad => padded(call, rank, shard),
        ShapeRule::Flatten => flattened(call, piece, shard),
        ShapeRule::Expand => expanded(call, piece, shard),
        ShapeRule::Repeat | ShapeRule::Tile => repeated(call, rank, shard),
        ShapeRule::Narrow | ShapeRule::Select => match dim("dim") {
            Some(at) if at == shard => Err(Refusal::Taken),
            Some(at) if call.rule.shape == ShapeRule::Select => Ok(Placed::Split(shard - usize::from(at < shard))),
            Some(_) => Ok(Placed::Split(shard)),
            None => Ok(Placed::Unknown),
        },
        ShapeRule::Split | ShapeRule::Chunk | ShapeRule::Unbind => {
            let at = match named(call, "dim") {
                Given::Absent => Some(0),
                _ => dim("dim"),
            };
            match at {
                Some(at) if at == shard => Err(Refusal::Taken),
                Some(at) if call.rule.shape == ShapeRule::Unbind => Ok(Placed::Split(shard - usize::from(at < shard))),
                Some(_) => Ok(Placed::Split(shard)),
                None => Ok(Placed::Unknown),
            }
        }
        ShapeRule::Getitem => subscripted(call.index, rank, shard),
        _ => Ok(Placed::Unknown),
    }
}

fn swapped(shard: usize, a: usize, b: usize) -> usize {
    if shard == a {
        b
    } else if shard == b {
        a
    } else {
        shard
    }
}

fn int(call: &ShardCall<'_>, name: &str) -> Option<i64> {
    match named(call, name) {
        Given::Int(n) => *n,
        Given::Absent => call.rule.args.params[call.rule.args.index(name)?].default.as_deref()?.parse().ok(),
        _ => None,
    }
}

/// The sizes, or dims, that the call gives as a list or one by one.
fn sizes(call: &ShardCall<'_>) -> Option<Vec<Dim>> {
    call.given.iter().skip(1).find_map(|g| match g {
        Given::Ints(list) => Some(list.clone()),
        Given::Int(n) => Some(vec![*n]),
        _ => None,
    })
}

fn squeezed(call: &ShardCall<'_>, piece: &Piece, shard: usize) -> Option<usize> {
    let rank = piece.shape.rank();
    let one = |d: &usize| piece.broadcasts(*d);
    let gone: Vec<usize> = match named(call, "dim") {
        Given::Absent | Given::Nothing => {
            // Of a split dim each rank may have one element, and then torch drops it there; the dim of the whole tensor stays.
            let dropped = piece.size(shard).is_none_or(|n| n == 1) && !call.runtime;
            let unknown = (0..rank).any(|d| d != shard && piece.size(d).is_none());
            if unknown || dropped {
                return None;
            }
            (0..rank).filter(one).collect()
        }
        Given::Int(d) => {
            let at = normalize_dim((*d)?, rank)?;
            piece.size(at)?;
            Some(at).into_iter().filter(one).collect()
        }
        _ => return None,
    };
    Some(shard - gone.iter().filter(|d| **d < shard).count())
}

/// Sizes on one rank before and after: groups of dims with the same number of elements.
fn reshaped(call: &ShardCall<'_>, piece: &Piece, shard: usize, to: &[Dim]) -> Result<Placed, Refusal> {
    let Some(from) = piece.shape.0.iter().copied().collect::<Option<Vec<i64>>>() else { return Ok(Placed::Unknown) };
    let Some(to) = resolved(&from, to) else { return Ok(Placed::Unknown) };
    let Some((inputs, outputs)) = groups(&from, &to).into_iter().find(|(i, _)| i.contains(&shard)) else {
        return Ok(Placed::Unknown);
    };
    let first = inputs.first() == Some(&shard);
    match outputs.as_slice() {
        [out] if first => Ok(Placed::Split(*out)),
        [_] => Err(Refusal::Strided),
        // A rank has one element of the dim, and nothing says where the others are in the new shape.
        [] if call.runtime => Err(Refusal::Strided),
        [] => Ok(Placed::Unknown),
        [out, ..] if first && !call.runtime => Ok(Placed::Split(*out)),
        _ => Err(Refusal::CutApart),
    }
}

/// Sizes with `-1` filled in.
fn resolved(from: &[i64], to: &[Dim]) -> Option<Vec<i64>> {
    let total = from.iter().try_fold(1i64, |n, d| n.checked_mul(*d))?;
    let mut to = to.iter().copied().collect::<Option<Vec<i64>>>()?;
    let known = to.iter().filter(|d| **d != -1).try_fold(1i64, |n, d| n.checked_mul(*d))?;
    for d in &mut to {
        if *d == -1 {
            *d = total.checked_div(known)?;
        }
    }
    Some(to)
}

/// Groups of dims of both shapes with equal numbers of elements, as small as they can be; a dim of one element that has no
/// counterpart is a group of its own.
fn groups(from: &[i64], to: &[i64]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < from.len() || j < to.len() {
        let (mut f, mut t) = (from.get(i).copied().unwrap_or(1), to.get(j).copied().unwrap_or(1));
        let alone = (f == 1) != (t == 1);
        let takes_left = i < from.len() && !(alone && t == 1);
        let takes_right = j < to.len() && !(alone && f == 1);
        let mut inputs: Vec<usize> = (i..i + usize::from(takes_left)).collect();
        let mut outputs: Vec<usize> = (j..j + usize::from(takes_right)).collect();
        (i, j) = (i + inputs.len(), j + outputs.len());
        while !alone && f != t {
            if i < from.len() && (j >= to.len() || t > f) {
                f = f.saturating_mul(from[i]);
                inputs.push(i);
                i += 1;
            } else if j < to.len() {
                t = t.saturating_mul(to[j]);
                outputs.push(j);
                j += 1;
            } else {
                break;
            }
        }
        if inputs.is_empty() && outputs.is_empty() {
            break;
        }
        out.push((inputs, outputs));
    }
    out
}

fn flattened(call: &ShardCall<'_>, piece: &Piece, shard: usize) -> Result<Placed, Refusal> {
    let rank = piece.shape.rank();
    let bound = |name: &str, default: i64| normalize_dim(int(call, name).unwrap_or(default), rank);
    let (Some(start), Some(end)) = (bound("start_dim", 0), bound("end_dim", -1)) else { return Ok(Placed::Unknown) };
    if start > end {
        return Ok(Placed::Unknown);
    }
    if shard < start {
        return Ok(Placed::Split(shard));
    }
    if shard > end {
        return Ok(Placed::Split(shard - (end - start)));
    }
    let before = (start..shard).map(|d| piece.size(d)).collect::<Option<Vec<i64>>>();
    match before {
        Some(sizes) if sizes.iter().all(|n| *n == 1) => Ok(Placed::Split(start)),
        Some(_) => Err(Refusal::Strided),
        None => Ok(Placed::Unknown),
    }
}

fn unflattened(call: &ShardCall<'_>, rank: usize, shard: usize) -> Result<Placed, Refusal> {
    let sizes = ["sizes", "unflattened_size"].iter().find_map(|name| match named(call, name) {
        Given::Ints(sizes) => Some(sizes.clone()),
        _ => None,
    });
    let at = int(call, "dim").and_then(|d| normalize_dim(d, rank));
    let (Some(sizes), Some(at)) = (sizes, at) else { return Ok(Placed::Unknown) };
    match shard {
        shard if shard < at => Ok(Placed::Split(shard)),
        shard if shard > at => Ok(Placed::Split((shard + sizes.len()).saturating_sub(1))),
        shard if sizes.first() == Some(&Some(-1)) => Ok(Placed::Split(shard)),
        // A size that is left open is one for each rank.
        _ if sizes.contains(&Some(-1)) => Ok(Placed::Unknown),
        _ => Err(Refusal::CutApart),
    }
}

/// Sizes to add before and after each dim, from the last on.
fn padded(call: &ShardCall<'_>, rank: usize, shard: usize) -> Result<Placed, Refusal> {
    let Given::Ints(pads) = named(call, "pad") else { return Ok(Placed::Unknown) };
    let from_end = rank - 1 - shard;
    let both = pads.iter().skip(2 * from_end).take(2);
    if both.clone().all(|n| *n == Some(0)) {
        Ok(Placed::Split(shard))
    } else if both.clone().any(Option::is_none) {
        Ok(Placed::Unknown)
    } else {
        Err(Refusal::Coupled)
    }
}

/// Rows of a table by index.
fn looked_up(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let piece = |name: &str| {
        let param = call.rule.args.index(name)?;
        call.pieces.iter().find(|p| p.param == param)
    };
    let (Some(index), Some(weight)) = (piece("input"), piece("weight")) else { return Ok(Placed::Unknown) };
    match (index.shard, weight.shard) {
        (_, Some(0)) => Err(Refusal::Taken),
        (None, Some(_)) if !index.unknown => Ok(Placed::Split(index.shape.rank())),
        (Some(dim), None) => Ok(Placed::Split(dim)),
        (Some(_), Some(_)) => Err(Refusal::OtherSplit(call.pieces.iter().position(|p| p == weight).unwrap_or(0))),
        _ => Ok(Placed::Unknown),
    }
}

/// Elements along a dim by index: `gather` has an index of the same rank, `index_select` of one dim.
fn selected(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let [input, index] = call.pieces else { return Ok(Placed::Unknown) };
    let rank = input.shape.rank();
    let Some(at) = int(call, "dim").and_then(|d| normalize_dim(d, rank)) else { return Ok(Placed::Unknown) };
    let gathers = call.rule.shape == ShapeRule::Gather;
    match (input.shard, index.shard) {
        (Some(shard), _) if shard == at => Err(Refusal::Taken),
        (Some(shard), None) if !gathers => Ok(Placed::Split(shard)),
        (None, Some(0)) if !gathers => Ok(Placed::Split(at)),
        (Some(shard), Some(other)) if gathers && shard == other => Ok(Placed::Split(shard)),
        (None, Some(other)) if gathers && other == at => Ok(Placed::Split(at)),
        (Some(_), Some(_)) => Err(Refusal::OtherSplit(1)),
        (Some(_), None) => Err(Refusal::OtherWhole(1)),
        (None, _) => Err(Refusal::OtherWhole(0)),
    }
}

fn expanded(call: &ShardCall<'_>, piece: &Piece, shard: usize) -> Result<Placed, Refusal> {
    let Some(to) = sizes(call) else { return Ok(Placed::Unknown) };
    let Some(added) = to.len().checked_sub(piece.shape.rank()) else { return Ok(Placed::Unknown) };
    let place = shard + added;
    if call.runtime && added > 0 && to[place] != Some(-1) {
        // The run time scales the size at the old place of the dim.
        return Err(Refusal::Repeated);
    }
    Ok(Placed::Split(place))
}

fn repeated(call: &ShardCall<'_>, rank: usize, shard: usize) -> Result<Placed, Refusal> {
    let Some(times) = sizes(call) else { return Ok(Placed::Unknown) };
    let result = times.len().max(rank);
    let place = shard + (result - rank);
    match (place + times.len()).checked_sub(result).map_or(Some(1), |at| times[at]) {
        Some(1) => Ok(Placed::Split(place)),
        Some(_) => Err(Refusal::Repeated),
        None => Ok(Placed::Unknown),
    }
}

/// Tensors joined along a dim that they have, or a new one.
fn joined(call: &ShardCall<'_>, new_dim: bool) -> Result<Placed, Refusal> {
    let Some(first) = call.pieces.iter().find_map(|p| Some((p.shard?, p.shape.rank()))) else {
        return Ok(Placed::Unknown);
    };
    let (shard, rank) = first;
    let given = match named(call, "dim") {
        Given::Absent => Some(0),
        Given::Int(d) => *d,
        _ => None,
    };
    let Some(at) = given.and_then(|d| normalize_dim(d, rank + usize::from(new_dim))) else {
        return Ok(Placed::Unknown);
    };
    for (i, piece) in call.pieces.iter().enumerate() {
        match piece.shard {
            Some(other) if other != shard => return Err(Refusal::OtherSplit(i)),
            None => return Err(Refusal::OtherWhole(i)),
            Some(_) => {}
        }
    }
    match (new_dim, shard) {
        (true, shard) => Ok(Placed::Split(if shard >= at { shard + 1 } else { shard })),
        (false, shard) if shard == at => Err(Refusal::Joined),
        (false, shard) => Ok(Placed::Split(shard)),
    }
}

/// `x[index]`.
pub(super) fn subscripted(index: &[Index], rank: usize, shard: usize) -> Result<Placed, Refusal> {
    let takes = |i: &&Index| matches!(i, Index::At | Index::Full | Index::Part | Index::Other);
    let taken = index.iter().filter(takes).count();
    let (mut dim, mut out) = (0, 0);
    for part in index {
        match part {
            Index::New => out += 1,
            Index::Ellipsis => {
                let n = rank.saturating_sub(taken);
                if (dim..dim + n).contains(&shard) {
                    return Ok(Placed::Split(out + shard - dim));
                }
                (dim, out) = (dim + n, out + n);
            }
            Index::Other => return Ok(Placed::Unknown),
            Index::At | Index::Part if dim == shard => return Err(Refusal::Taken),
            Index::At => dim += 1,
            Index::Full if dim == shard => return Ok(Placed::Split(out)),
            Index::Full | Index::Part => (dim, out) = (dim + 1, out + 1),
        }
    }
    Ok(if shard >= dim { Placed::Split(out + shard - dim) } else { Placed::Unknown })
}
