//! Which dim of a tensor is the sequence, as comments say it, and the dim that a call gathers or declares sharded. In: a function.
//! Out: calls about another dim. Never: tensors that are transposed on the way, or comments that disagree with each other.
//! Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near::{self, Note};
use super::view::View;
use crate::ir::{Arg, Const, LocalId, Operand, Rvalue, UnOp};
use crate::source::Place;

/// Gathers with the dim as an argument: the last name, its position and keyword, and where the group is.
const GATHERS: &[(&str, usize, &str)] = &[
    ("all_gather_tensor_autograd", 1, "gather_dim"),
    ("all_gather_tensor", 1, "gather_dim"),
    ("reduce_scatter_tensor_autograd", 2, "scatter_dim"),
    ("reduce_scatter_tensor", 2, "scatter_dim"),
];

/// Without one of these there is no such call.
pub const WORDS: &[&str] = &["all_gather_tensor", "reduce_scatter_tensor", "from_local"];

/// Methods that keep the order of dims.
const KEEPS: &[&str] =
    &["contiguous", "to", "float", "half", "bfloat16", "clone", "detach", "type", "cuda", "requires_grad_"];

pub fn dims(view: &View<'_>, out: &mut Found) {
    let text = view.code();
    if !WORDS.iter().any(|w| text.contains(w)) {
        return;
    }
    let notes = near::notes(view);
    // After an exchange the ranks have parts of the heads, and the comments show no more than the order of the dims.
    let splits = |n: &&Note| {
        n.text.contains("head") && ["shard", "split", "scatter", "partition"].iter().any(|w| n.text.contains(w))
    };
    if notes.iter().any(|n| splits(&n)) {
        return;
    }
    let Some((sequence, why)) = sequence(&notes) else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value) = view.value(i) else { continue };
        let Some((dim, tensor, at)) = gathered(view, value).or_else(|| declared(view, value)) else { continue };
        let dim = match usize::try_from(dim) {
            Ok(dim) => dim,
            Err(_) => continue,
        };
        if dim == sequence || is_named_otherwise(&notes, dim) || !is_direct(view, tensor, i) {
            continue;
        }
        let place = at.unwrap_or_else(|| view.place(step.id));
        out.push((place, Practice::Placements(Placements::ShardDim { dim, sequence, why })));
    }
}

/// The dim and the tensor of a gather over a sequence group.
fn gathered<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<(i64, &'a Operand, Option<Place>)> {
    let Rvalue::Call { callee, args } = value else { return None };
    let name = view.through(callee).last_name()?.to_string();
    let (_, at, keyword) = GATHERS.iter().find(|(n, ..)| *n == name)?;
    let dim = integer(&near::deep(view, &view.expr(view.argument(args, *at, keyword)?)))?;
    over_sequence(view, view.argument(args, at + 1, "group")?).then_some(())?;
    Some((dim, view.argument(args, 0, "self")?, None))
}

/// Whether a group is one that splits sequences.
fn over_sequence(view: &View<'_>, group: &Operand) -> bool {
    goes_by(view, group, &["cp", "context", "sp", "seq", "sequence", "ring"])
}

/// Whether it goes by the name of an axis that splits something else.
fn over_other(view: &View<'_>, group: &Operand) -> bool {
    goes_by(view, group, &["tp", "dp", "fsdp", "ep", "pp", "tensor", "data", "expert", "pipeline", "model"])
}

/// A comment without its lists of dims.
fn outside_brackets(text: &str) -> String {
    let mut depth = 0usize;
    let outside = |c: &char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    text.chars().filter(outside).collect()
}

/// Whether a part of a name in an expression is one of these words.
fn goes_by(view: &View<'_>, group: &Operand, parts: &[&str]) -> bool {
    let expr = view.expr(group);
    let mut words = Vec::new();
    expr.any(&mut |e| {
        match e {
            Expr::Local(l) => words.push(view.local_name(*l).as_str().to_lowercase()),
            Expr::Attr(_, name) => words.push(name.as_str().to_lowercase()),
            Expr::Path(path) => words.push(path.rsplit('.').next().unwrap_or("").to_lowercase()),
            Expr::Const(Const::Str(text)) => words.push(text.as_str().to_lowercase()),
            _ => {}
        }
        false
    });
    words.iter().any(|w| parts.iter().any(|p| near::has_part(w, p)))
}

/// The dim that `from_local(t, mesh, [Shard(n)])` declares; the place where it is written.
fn declared<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<(i64, &'a Operand, Option<Place>)> {
    let (args, name): (&[Arg], String) = match value {
        Rvalue::Call { callee, args } => (args, view.through(callee).last_name()?.to_string()),
        Rvalue::CallMethod { name, args, .. } => (args, name.to_string()),
        _ => return None,
    };
    if name != "from_local" {
        return None;
    }
    let mesh = view.argument(args, 1, "device_mesh")?;
    // The order of the dims says nothing of what the mesh splits; a sentence does, where the mesh is of no other axis.
    let says = |n: &Note| ["context", "cp ", "sequence"].iter().any(|w| outside_brackets(&n.text).contains(w));
    let around = over_sequence(view, mesh) || near::notes(view).iter().any(says) && !over_other(view, mesh);
    let given = view.argument(args, 2, "placements")?;
    let Expr::Build(items) = near::deep(view, &view.expr(given)) else { return None };
    let [only] = items.as_slice() else { return None };
    let dim = integer(&only.call_of("Shard")?.first()?.1)?;
    around.then_some(())?;
    Some((dim, view.argument(args, 0, "local_tensor")?, written(view, given)))
}

/// Where a list of placements is written, in this function or one around it.
fn written(view: &View<'_>, given: &Operand) -> Option<Place> {
    let Operand::Local(local) = given else { return None };
    if let [step] = view.defs(*local) {
        return Some(view.place(view.steps[*step].id));
    }
    let (outer, _) = view.func.captures.iter().find(|(_, inner)| inner == local)?;
    let around = near::other(view, crate::project::FuncRef { module: view.at.module, func: view.func.parent? });
    match around.defs(*outer) {
        [step] => Some(around.place(around.steps[*step].id)),
        _ => None,
    }
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Const(Const::Int(n)) => Some(*n),
        Expr::Unary(UnOp::Neg, inner) => integer(inner).map(|n| -n),
        _ => None,
    }
}

/// Whether a tensor comes from a parameter without a change of the order of its dims.
fn is_direct(view: &View<'_>, tensor: &Operand, before: usize) -> bool {
    fn param(view: &View<'_>, expr: &Expr, before: usize, depth: usize) -> bool {
        match expr {
            _ if depth > 6 => false,
            Expr::Local(l) => {
                let defs: Vec<usize> = view.defs(*l).iter().copied().filter(|d| *d < before).collect();
                view.is_param(*l) && defs.is_empty() || bound(view, *l, &defs, depth)
            }
            Expr::Call { callee, .. } => match &**callee {
                Expr::Attr(base, name) if KEEPS.contains(&name.as_str()) => param(view, base, before, depth + 1),
                _ => false,
            },
            // An element of `(q, k, v)`.
            Expr::Element(all) => match &**all {
                Expr::Build(items) => items.iter().all(|i| param(view, i, before, depth + 1)),
                _ => false,
            },
            _ => false,
        }
    }
    fn bound(view: &View<'_>, _: LocalId, defs: &[usize], depth: usize) -> bool {
        let [one] = defs else { return false };
        match view.steps[*one].stmt {
            crate::ir::Stmt::For { iter, .. } => match view.expr(iter) {
                Expr::Build(items) => items.iter().all(|i| param(view, i, *one, depth + 1)),
                _ => false,
            },
            crate::ir::Stmt::Assign { value: Rvalue::Use(o), .. } => param(view, &view.expr(o), *one, depth + 1),
            crate::ir::Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => {
                KEEPS.contains(&name.as_str()) && param(view, &view.expr(base), *one, depth + 1)
            }
            _ => false,
        }
    }
    param(view, &view.expr(tensor), before, 0)
}

/// The dim that all comments agree to be the sequence.
fn sequence(notes: &[Note]) -> Option<(usize, Option<Place>)> {
    let mut found: Vec<(usize, Option<Place>)> = Vec::new();
    for note in notes {
        for dim in stated(&note.text) {
            found.push((dim, note.place));
        }
    }
    let (first, _) = found.first().copied()?;
    // A comment shows better than a docstring.
    let shown = found.iter().find(|(_, place)| place.is_some()).and_then(|(_, p)| *p);
    found.iter().all(|(d, _)| *d == first).then_some((first, shown))
}

/// Whether a list of dims in a comment calls a dim by what other axes split: heads are gathered after an exchange.
fn is_named_otherwise(notes: &[Note], dim: usize) -> bool {
    notes.iter().any(|n| {
        n.text.match_indices(['(', '[']).any(|(at, _)| {
            let list = n.text[at + 1..].split([')', ']']).next().unwrap_or_default();
            let name = list.split(',').nth(dim).unwrap_or_default();
            ["head", "vocab", "expert"].iter().any(|w| name.contains(w))
        })
    })
}

/// What a comment says of the dim of the sequence.
fn stated(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    let squeezed: String = text.replace("dimension", "dim").replace("the ", "").replace('`', "");
    for form in [
        "sequence (dim ",
        "sequence is dim ",
        "sequence dim is ",
        "sequence dim ",
        "sequence at dim ",
        "sequence in dim ",
        "sequence on dim ",
        "seq dim ",
        "seq_dim=",
        "seq dim is ",
        "sequence = dim ",
        "sequence along dim ",
    ] {
        for (at, _) in squeezed.match_indices(form) {
            out.extend(digit(&squeezed[at + form.len()..]));
        }
    }
    for (at, _) in squeezed.match_indices("dim ") {
        let rest = &squeezed[at + 4..];
        let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let says = [" is sequence", " = sequence", " (sequence", ": sequence", " is seq", " (seq"]
            .iter()
            .any(|w| tail.starts_with(w));
        out.extend(says.then(|| digit(rest)).flatten());
    }
    for (at, layout) in layouts(&squeezed) {
        let after = squeezed[..at].trim_end().trim_end_matches([':', '=']).trim_end();
        let moved = ["transposes to", "transpose to", "transposed to", "transposes into", "permutes to", "permuted to"];
        match moved.iter().any(|w| after.ends_with(w)) {
            // Behind the call: before it, dims 1 and 2 were the other way round.
            true if layout == 2 => out.push(1),
            true if layout == 1 => out.push(2),
            true => {}
            false => out.push(layout),
        }
    }
    out
}

fn digit(text: &str) -> Option<usize> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Layouts such as `(b, l, h, d)`: where they stand, and the index of the sequence.
fn layouts(text: &str) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    for (open, close) in [('(', ')'), ('[', ']')] {
        for (at, _) in text.match_indices(open) {
            let Some(end) = text[at..].find(close) else { continue };
            let parts: Vec<&str> = text[at + 1..at + end].split(',').map(str::trim).collect();
            if !(3..=5).contains(&parts.len()) || !parts.iter().all(|p| is_dim(p)) {
                continue;
            }
            let batch = parts.iter().any(|p| ["b", "batch", "bs", "bsz", "batch_size"].contains(p));
            let of_sequence: Vec<usize> = (0..parts.len()).filter(|i| is_sequence(parts[*i])).collect();
            if let (true, [one]) = (batch, of_sequence.as_slice()) {
                out.push((at, *one));
            }
        }
    }
    out
}

fn is_dim(part: &str) -> bool {
    !part.is_empty()
        && part.len() < 16
        && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | '*'))
        && !part.starts_with(|c: char| c.is_ascii_digit())
}

fn is_sequence(part: &str) -> bool {
    let base = part.split(['/', '*']).next().unwrap_or(part);
    matches!(
        base,
        "l" | "s"
            | "t"
            | "seq"
            | "seqlen"
            | "seq_len"
            | "sequence"
            | "s_local"
            | "l_local"
            | "seq_local"
            | "local_seq"
            | "slen"
            | "sq"
            | "length"
    )
}
