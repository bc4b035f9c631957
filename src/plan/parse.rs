//! Placements as people write them. In: `S(0), R`, `[Shard(0), Partial("avg")]`, `S(0)[1]S(0)[0]`. Out: [`Written`], its
//! dims as written. Never: a mesh or a rank, which `refusal.rs` compares them with. Next: `order.rs`.

use super::mesh::unbracketed;
use super::placement::ReduceOp;

/// A placement before it meets a tensor: dims may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Replicate,
    /// With the place in the order of the shards of its dim, if that is written: `S(0)[1]`.
    Shard {
        dim: i64,
        order: Option<usize>,
    },
    Strided {
        dim: i64,
        split: u64,
    },
    Partial(ReduceOp),
}

/// Longest first: a word is read as the longest name that fits, so that `PS(1)` is two placements.
const NAMES: [(&str, Name); 9] = [
    ("_StridedShard", Name::Strided),
    ("StridedShard", Name::Strided),
    ("Replicate", Name::Replicate),
    ("Partial", Name::Partial),
    ("Shard", Name::Shard),
    ("_S", Name::Strided),
    ("R", Name::Replicate),
    ("P", Name::Partial),
    ("S", Name::Shard),
];

#[derive(Clone, Copy)]
enum Name {
    Replicate,
    Shard,
    Strided,
    Partial,
}

/// Reads a list of placements. The commas between them may be left out, as the run time prints them.
pub fn placements(text: &str) -> Result<Vec<Written>, String> {
    let mut rest = without_brackets(text);
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (placement, after) = one(rest)?;
        found.push(placement);
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Ok(found)
}

/// `[S(0), R]` is a list; the brackets of `(S(0))` are too, those of `S(0)` are not.
fn without_brackets(text: &str) -> &str {
    match text.trim_start().starts_with(['[', '(']) {
        true => unbracketed(text),
        false => text.trim(),
    }
}

/// The first placement of a text, and what follows it.
fn one(text: &str) -> Result<(Written, &str), String> {
    let known = NAMES.iter().find(|(name, _)| text.starts_with(name));
    let Some((name, kind)) = known else {
        let word: String = text.chars().take_while(|c| !matches!(c, ',' | ' ')).take(40).collect();
        if word.is_empty() {
            return Err("a placement is missing between two commas".to_owned());
        }
        return Err(format!("`{word}` is not a placement; they are R, S(0), P(sum) and _S(0, 2)"));
    };
    let rest = &text[name.len()..];
    let (arguments, rest) = match rest.strip_prefix('(') {
        Some(inside) => {
            let end = inside.find(')').ok_or_else(|| format!("`{text}` has a `(` that is not closed"))?;
            (
                Some(inside[..end].split(',').map(str::trim).filter(|word| !word.is_empty()).collect()),
                &inside[end + 1..],
            )
        }
        None => (None, rest),
    };
    if arguments.is_none() && rest.starts_with(|c: char| c.is_ascii_lowercase()) {
        let word: String = text.chars().take_while(|c| c.is_alphanumeric()).take(40).collect();
        return Err(format!("`{word}` is not a placement; they are R, S(0), P(sum) and _S(0, 2)"));
    }
    let written = &text[..text.len() - rest.len()];
    let arguments: Vec<&str> = arguments.unwrap_or_default();
    let placement = match kind {
        Name::Replicate if arguments.is_empty() => Written::Replicate,
        Name::Replicate => return Err(format!("`{written}`: a Replicate has no arguments")),
        Name::Partial => Written::Partial(reduce_op(written, &arguments)?),
        Name::Strided => strided(written, &arguments)?,
        Name::Shard => return shard(written, &arguments, rest),
    };
    Ok((placement, rest))
}

/// `S(0)`, `Shard(dim=-1)`, and the place in the order of shards that may follow.
fn shard<'a>(written: &str, arguments: &[&str], rest: &'a str) -> Result<(Written, &'a str), String> {
    let [dim] = arguments else {
        return Err(format!("`{written}`: a Shard has one argument, its tensor dim"));
    };
    let dim = number(written, value(dim, &["dim"]))?;
    let Some(inside) = rest.strip_prefix('[') else {
        return Ok((Written::Shard { dim, order: None }, rest));
    };
    let end = inside.find(']').ok_or_else(|| format!("`{written}{rest}` has a `[` that is not closed"))?;
    let order = inside[..end].trim();
    let order =
        order.parse().map_err(|_| format!("`{written}[{order}]`: the place in the order is a number from 0"))?;
    Ok((Written::Shard { dim, order: Some(order) }, &inside[end + 1..]))
}

/// `_S(0, 2)`, `_StridedShard(dim=0, sf=2)`.
fn strided(written: &str, arguments: &[&str]) -> Result<Written, String> {
    let [dim, split] = arguments else {
        return Err(format!("`{written}`: a _StridedShard has two arguments, its tensor dim and its split factor"));
    };
    let dim = number(written, value(dim, &["dim"]))?;
    match number(written, value(split, &["split_factor", "sf"]))? {
        split @ 1.. => Ok(Written::Strided { dim, split: split.unsigned_abs() }),
        split => Err(format!("`{written}`: the split factor {split} is not positive")),
    }
}

/// `P`, `P(avg)`, `Partial("avg")`, `Partial(reduce_op='avg')`.
fn reduce_op(written: &str, arguments: &[&str]) -> Result<ReduceOp, String> {
    let name = match arguments {
        [] => return Ok(ReduceOp::Sum),
        [one] => value(one, &["reduce_op"]).trim_matches(['"', '\'']),
        _ => return Err(format!("`{written}`: a Partial has one argument, its reduction")),
    };
    ReduceOp::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| {
        let names: Vec<&str> = ReduceOp::ALL.iter().map(|op| op.name()).collect();
        format!("`{written}`: `{name}` is not a reduction; they are {}", names.join(", "))
    })
}

/// The value of an argument that may carry its name.
fn value<'a>(argument: &'a str, names: &[&str]) -> &'a str {
    match argument.split_once('=') {
        Some((name, value)) if names.contains(&name.trim()) => value.trim(),
        _ => argument,
    }
}

fn number(written: &str, text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("`{written}`: `{text}` is not a whole number"))
}
