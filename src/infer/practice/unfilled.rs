//! Buffers that nothing fills. In: a function. Out: a tensor of `torch.empty`, or a list of such tensors, that is computed with, or that a
//! function returns which is named after a collective, and that nothing can have written to: every step that reads it, or a view of it,
//! only looks. Never: a buffer that is handed to anything that is not known, without entries, on the meta device, or whose function only
//! makes buffers. Source: torch.empty: the tensor is filled with uninitialized data. Next: `no_result.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::hidden_change::is_out;
use super::lapses::Lapse;
use super::near;
use super::only_some::decorator_line;
use super::view::View;
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, Const, Item, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::source::Name;
use rustc_hash::FxHashSet;

/// What the text of a function shows that has to do with ranks.
pub const RANKS: &[&str] = &["group", "rank", "world", "dist.", "mesh", "distributed"];

/// What makes a buffer.
pub const MAKES: &[&str] = &["empty(", "empty_like("];

/// What the text of a function shows that only looks at sizes or measures time.
const NO_VALUES: &[&str] = &["meta", "fake", "bench", "warmup", "abstract", "time.", "compiling"];

/// Methods that give a view of a tensor, or the tensor itself or a copy of it.
const VIEWS: &[&str] = &[
    "view",
    "view_as",
    "reshape",
    "flatten",
    "squeeze",
    "unsqueeze",
    "transpose",
    "t",
    "permute",
    "narrow",
    "select",
    "contiguous",
    "expand",
    "detach",
    "movedim",
    "to",
    "float",
    "bfloat16",
    "half",
    "double",
    "long",
    "int",
    "type_as",
    "clone",
    "cpu",
    "cuda",
    "requires_grad_",
];

/// Methods that give several views of a tensor.
const PARTS: &[&str] = &["chunk", "split", "unbind", "tensor_split"];

/// Methods and attributes that look at anything but the values.
const LOOKS: &[&str] = &[
    "size",
    "numel",
    "nelement",
    "dim",
    "stride",
    "element_size",
    "is_contiguous",
    "get_device",
    "shape",
    "dtype",
    "device",
    "ndim",
    "layout",
    "requires_grad",
    "is_cuda",
    "nbytes",
    "itemsize",
];

/// Methods and functions that compute with the values of a tensor and write none.
const COMPUTES: &[&str] = &[
    "item",
    "tolist",
    "sum",
    "mean",
    "max",
    "min",
    "amax",
    "amin",
    "argmax",
    "norm",
    "any",
    "all",
    "prod",
    "cumsum",
    "cat",
    "stack",
    "concat",
    "concatenate",
    "hstack",
    "vstack",
    "matmul",
    "mm",
    "bmm",
    "dot",
    "topk",
    "sort",
    "median",
    "std",
    "var",
];

/// Methods that read the tensor that they are given.
const TAKES: &[&str] = &["add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "copy_", "matmul"];

/// Parts of names of functions that return what a collective brings.
const BRINGS: &[&str] =
    &["gather", "scatter", "all_to_all", "alltoall", "all2all", "a2a", "broadcast", "allreduce", "all_reduce", "recv"];

/// Parts of names of functions that make buffers for others.
const GIVES: &[&str] =
    &["buf", "alloc", "empty", "workspace", "create", "make", "get", "init", "new", "prepare", "shape", "output"];

/// What is known of a buffer after all that reads it was seen.
struct Use {
    /// The step that computes with it or returns it.
    read: usize,
    /// Whether it is what the function returns.
    returned: bool,
}

/// `parts = [torch.empty_like(x) for _ in range(size)]`, `return torch.cat(parts)`
pub fn buffers(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), NO_VALUES) {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((dst, by)) = made(view, step) else { continue };
        let Some((buffer, used)) = named(view, dst).and_then(|named| Some((named, used(view, dst)?))) else { continue };
        let mistake = Lapse::NeverFilled {
            buffer: view.local_name(buffer).clone(),
            by,
            made: view.place(view.steps[step].id),
            returned: used.returned,
        };
        out.push((view.place(view.steps[used.read].id), Practice::Lapse(mistake)));
    }
}

/// The variable that a step binds to a tensor without values, and what makes it.
fn made(view: &View<'_>, step: usize) -> Option<(LocalId, Name)> {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return None };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let name = near::written_name(view, value)?;
    let torchs = match value {
        Rvalue::CallMethod { name, .. } if name == "new_empty" => true,
        _ => view.callee(value).is_some_and(|path| path == "torch.empty" || path == "torch.empty_like"),
    };
    let plain = args.iter().all(|a| plain_argument(view, a));
    let alone = view.steps[step].contexts.is_empty() || view.in_plain_contexts(step) || view.without_gradient(step);
    (torchs && plain && alone).then_some((*dst, name))
}

/// Whether an argument says neither that a buffer has no entries, nor that it is another one.
fn plain_argument(view: &View<'_>, arg: &Arg) -> bool {
    match &arg.kind {
        ArgKind::DoubleStar => false,
        ArgKind::Keyword(_) if is_out(arg) => false,
        ArgKind::Star | ArgKind::Keyword(_) | ArgKind::Positional => {
            has_entries(&near::deep(view, &view.expr(&arg.value)))
        }
    }
}

/// Whether no size is zero, as far as it is a number.
fn has_entries(value: &Expr) -> bool {
    match value {
        Expr::Const(c) => *c != Const::Int(0),
        Expr::Build(items) => items.iter().all(has_entries),
        _ => true,
    }
}

/// The name of a buffer, or of the list of it. What has none is only there for its size.
fn named(view: &View<'_>, mut local: LocalId) -> Option<LocalId> {
    while view.is_temp(local) {
        let [reader] = view.readers(local) else { return None };
        local = match view.steps[*reader].stmt {
            Stmt::Append { collection, .. } => *collection,
            Stmt::Assign { dst, value: Rvalue::Use(_) | Rvalue::Build { .. } } => *dst,
            Stmt::Assign { dst, value: Rvalue::Binary { op: BinOp::Mul, .. } } if is_list(view, local) => *dst,
            _ => return None,
        };
    }
    (view.local_name(local) != "_").then_some(local)
}

/// Whether a variable is a list where it is bound.
fn is_list(view: &View<'_>, local: LocalId) -> bool {
    view.defs(local).iter().any(|step| matches!(view.value(*step), Some(Rvalue::Build { .. })))
}

/// How a buffer is read, if everything that reads it or what shares its memory only looks.
fn used(view: &View<'_>, buffer: LocalId) -> Option<Use> {
    let mut known = FxHashSet::default();
    let mut next = vec![buffer];
    let mut found: Option<Use> = None;
    while let Some(local) = next.pop() {
        if !known.insert(local) {
            continue;
        }
        if view.is_param(local) || view.func.locals()[local].kind == LocalKind::Cell {
            return None;
        }
        for step in view.readers(local).iter().copied() {
            match look(view, step, local)? {
                Look::Shares(others) => next.extend(others),
                Look::Sizes => {}
                Look::Reads { returned } => {
                    let earlier = found.as_ref().is_none_or(|f| step < f.read || f.returned && !returned);
                    if earlier && (!returned || brings(view)) {
                        found = Some(Use { read: step, returned });
                    }
                }
            }
        }
    }
    // What is bound in several places may be something else, and a list may have other entries.
    known.iter().all(|local| whole(view, *local, &known)).then_some(found)?
}

/// Whether all that a variable is bound to is such a buffer.
fn whole(view: &View<'_>, local: LocalId, known: &FxHashSet<LocalId>) -> bool {
    let of = |o: &Operand| near::local(o).is_some_and(|l| known.contains(&l));
    let other =
        |stmt: &Stmt| matches!(stmt, Stmt::Append { collection, value, .. } if *collection == local && !of(value));
    if view.steps.iter().any(|s| other(s.stmt)) {
        return false;
    }
    view.defs(local).iter().all(|step| match view.steps[*step].stmt {
        Stmt::Assign { value: Rvalue::Build { items, .. }, .. } => {
            items.iter().all(|item| matches!(item, Item::One(one) if of(one)))
        }
        Stmt::Assign { value, .. } => made(view, *step).is_some() || value.operands().into_iter().any(of),
        Stmt::For { iter: value, .. } | Stmt::Unpack { value, .. } => of(value),
        _ => false,
    })
}

/// What a step does with a buffer that it reads.
enum Look {
    /// These are the same memory, or hold it.
    Shares(Vec<LocalId>),
    Sizes,
    Reads {
        returned: bool,
    },
}

/// `None`: it may write.
fn look<'a>(view: &View<'a>, step: usize, local: LocalId) -> Option<Look> {
    let is = |o: &Operand| *o == Operand::Local(local);
    match view.steps[step].stmt {
        Stmt::Assign { dst, value } => look_of(view, *dst, value, &is),
        Stmt::Unpack { before, star: None, after, .. } => {
            Some(Look::Shares(before.iter().chain(after.iter()).copied().collect()))
        }
        Stmt::For { dst, .. } => Some(Look::Shares(vec![*dst])),
        Stmt::Append { collection, value, key: None } if is(value) => Some(Look::Shares(vec![*collection])),
        Stmt::Return { .. } => Some(Look::Reads { returned: true }),
        _ => None,
    }
}

fn look_of<'a>(view: &View<'a>, dst: LocalId, value: &'a Rvalue, is: &dyn Fn(&Operand) -> bool) -> Option<Look> {
    let shares = Some(Look::Shares(vec![dst]));
    let reads = Some(Look::Reads { returned: false });
    match value {
        Rvalue::Use(_) => shares,
        Rvalue::Attr { name, .. } if LOOKS.contains(&name.as_str()) => Some(Look::Sizes),
        Rvalue::Attr { name, .. } if matches!(name.as_str(), "T" | "mT" | "data") => shares,
        Rvalue::Item { base, .. } if is(base) => shares,
        Rvalue::Item { .. } => reads,
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } if args.iter().any(is_out) => None,
        Rvalue::CallMethod { base, name, .. } if is(base) => match name.as_str() {
            name if VIEWS.contains(&name) || PARTS.contains(&name) => shares,
            name if LOOKS.contains(&name) => Some(Look::Sizes),
            name if COMPUTES.contains(&name) => reads,
            _ => None,
        },
        Rvalue::CallMethod { name, .. } if TAKES.contains(&name.as_str()) => reads,
        Rvalue::Call { .. } | Rvalue::CallMethod { .. } => {
            let path = view.callee(value)?;
            match path.strip_prefix("torch.") {
                Some(name) if COMPUTES.contains(&name) => reads,
                Some(name) if name.ends_with("_like") => Some(Look::Sizes),
                Some(name) if PARTS.contains(&name) => shares,
                None if path == "len" || path == "builtins.len" => Some(Look::Sizes),
                _ => None,
            }
        }
        Rvalue::Binary { op, left, right }
            if [left, right].into_iter().any(|o| is(o) && near::local(o).is_some_and(|l| is_list(view, l))) =>
        {
            // Of a sum of lists, the others are not known.
            (*op == BinOp::Mul).then_some(Look::Shares(vec![dst]))
        }
        Rvalue::Binary { .. } => reads,
        Rvalue::InPlace { left, .. } if !is(left) => reads,
        Rvalue::Unary { .. } | Rvalue::Compare { .. } => Some(Look::Sizes),
        Rvalue::Build { kind: BuildKind::List | BuildKind::Tuple, .. } => shares,
        _ => None,
    }
}

/// Whether what a function returns is what a collective brings: it is named after one, or it is a method of an autograd function.
fn brings(view: &View<'_>) -> bool {
    let name = view.func.name.to_lowercase();
    let method = matches!(&*name, "forward" | "backward") && near::autograd_class(view).is_some();
    let named = near::has_any(&name, BRINGS) && !near::has_any(&name, GIVES);
    let bare = decorator_line(view).is_none_or(|line| line.contains("staticmethod") || line.contains("no_grad"));
    (method || named) && bare
}
