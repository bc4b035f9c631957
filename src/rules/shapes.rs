//! Shapes of results: ranks and sizes by rule, from the shapes and constants of a call.
//!
//! In: a [`ShapeRule`] and what was given for each parameter. Out: the shape of each result, `None` where not known.
//! Never: an error about shapes; torch reports those. Source: the torch documentation of each operation. Next: `infer/ops.rs`.

use super::signature::Signature;
use crate::types::{Dim, Shape};

/// What a call gave for one parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    Absent,
    /// `None` in the source.
    Nothing,
    Int(Option<i64>),
    Ints(Vec<Option<i64>>),
    Bool(bool),
    Str(String),
    Tensor(Option<Shape>),
    Tensors(Vec<Option<Shape>>),
    Unknown,
}

/// Shapes of the results of one call.
#[derive(Clone, Debug, PartialEq)]
pub enum Shapes {
    One(Option<Shape>),
    /// A list of as many tensors, if the number is known, each of this shape.
    Many(Option<usize>, Option<Shape>),
}

macro_rules! shape_rules {
    ($($variant:ident = $text:literal),* $(,)?) => {
        /// The shape rules of `rules/README.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ShapeRule { $($variant),* }
        impl ShapeRule {
            pub fn parse(text: &str) -> Option<ShapeRule> {
                match text { $($text => Some(ShapeRule::$variant),)* _ => None }
            }
        }
    };
}

shape_rules! {
    Same = "same", Broadcast = "broadcast", Reduce = "reduce", ReduceOrBroadcast = "reduce-or-broadcast", Scalar = "scalar",
    Matmul = "matmul", Mm = "mm", Bmm = "bmm", Mv = "mv", Dot = "dot", Outer = "outer", Linear = "linear", Addmm = "addmm",
    Einsum = "einsum", View = "view", Flatten = "flatten", Unflatten = "unflatten", Transpose = "transpose", T = "t", Mt = "mT", Reversed = "reversed",
    Permute = "permute", Squeeze = "squeeze", Unsqueeze = "unsqueeze", Expand = "expand", ExpandAs = "expand-as",
    ViewAs = "view-as", Repeat = "repeat", Tile = "tile", Cat = "cat", Stack = "stack", Split = "split", Chunk = "chunk",
    Unbind = "unbind", Narrow = "narrow", Select = "select", IndexSelect = "index-select", Gather = "gather", Topk = "topk",
    Sort = "sort", Factory = "factory", New = "new", Like = "like", Arange = "arange", Full = "full", Sized = "sized", Tensor = "tensor",
    Embedding = "embedding", OneHot = "one-hot", Pad = "pad", Movedim = "movedim", Diagonal = "diagonal",
    RepeatInterleave = "repeat-interleave", SameRank = "same-rank", LastDim = "last-dim", OneDim = "one-dim", Getitem = "getitem", Setitem = "setitem", Loss = "loss", ClassLoss = "class-loss", None = "none",
}

/// The arguments of one call, by parameter.
pub struct ShapeArgs<'a> {
    pub signature: &'a Signature,
    pub given: &'a [Given],
    /// Parameters that carry the type, in order.
    pub tensors: &'a [usize],
}

impl ShapeArgs<'_> {
    fn named(&self, name: &str) -> &Given {
        self.signature.index(name).and_then(|i| self.given.get(i)).unwrap_or(&Given::Absent)
    }
    fn int(&self, name: &str) -> Option<i64> {
        match self.named(name) {
            Given::Int(n) => *n,
            _ => None,
        }
    }
    fn absent(&self, name: &str) -> bool {
        matches!(self.named(name), Given::Absent | Given::Nothing)
    }
    /// Shapes of all tensor operands.
    fn shapes(&self) -> Vec<Option<Shape>> {
        let mut out = Vec::new();
        for i in self.tensors {
            match self.given.get(*i) {
                Some(Given::Tensor(s)) => out.push(s.clone()),
                Some(Given::Tensors(list)) => out.extend(list.iter().cloned()),
                Some(Given::Unknown) => out.push(None),
                _ => {}
            }
        }
        out
    }
    fn first(&self) -> Option<Shape> {
        match self.given.first()? {
            Given::Tensor(s) => s.clone(),
            _ => self.shapes().into_iter().next().flatten(),
        }
    }
    /// Integers of a variadic parameter, or of a tuple given for it.
    fn sizes(&self, name: &str) -> Option<Vec<Dim>> {
        match self.named(name) {
            Given::Ints(sizes) => Some(sizes.clone()),
            Given::Int(n) => Some(vec![*n]),
            _ => None,
        }
    }
    /// Sizes wherever the signature takes them: the first list of integers.
    fn any_sizes(&self) -> Option<Vec<Dim>> {
        self.given.iter().find_map(|g| match g {
            Given::Ints(sizes) => Some(sizes.clone()),
            Given::Int(n) => Some(vec![*n]),
            _ => None,
        })
    }
}

/// The shapes of the results.
pub fn infer(rule: ShapeRule, args: &ShapeArgs<'_>) -> Shapes {
    match rule {
        ShapeRule::Split | ShapeRule::Chunk | ShapeRule::Unbind => several(rule, args),
        _ => Shapes::One(single(rule, args)),
    }
}

fn single(rule: ShapeRule, args: &ShapeArgs<'_>) -> Option<Shape> {
    match rule {
        ShapeRule::Same | ShapeRule::Sort | ShapeRule::Like => args.first(),
        ShapeRule::Broadcast => broadcast(&args.shapes()),
        ShapeRule::Reduce => reduce(args),
        ShapeRule::ReduceOrBroadcast => {
            let two = args.shapes().len() > 1;
            if two { broadcast(&args.shapes()) } else { reduce(args) }
        }
        ShapeRule::Scalar | ShapeRule::Dot => Some(Shape(vec![])),
        ShapeRule::Matmul | ShapeRule::Mm | ShapeRule::Bmm | ShapeRule::Mv => {
            let s = args.shapes();
            matmul(s.first()?.as_ref()?, s.get(1)?.as_ref()?)
        }
        ShapeRule::Outer => {
            let s = args.shapes();
            let (a, b) = (s.first()?.as_ref()?, s.get(1)?.as_ref()?);
            Some(Shape(vec![*a.0.first()?, *b.0.first()?]))
        }
        ShapeRule::Linear => {
            let s = args.shapes();
            let mut out = s.first()?.clone()?;
            if s.get(1)?.as_ref().is_some_and(|w| w.rank() == 1) {
                // A weight without output features is one of them, and leaves no dim.
                out.0.pop();
                return Some(out);
            }
            *out.0.last_mut()? = s.get(1)?.as_ref().and_then(|w| w.0.first().copied()).flatten();
            Some(out)
        }
        ShapeRule::Addmm => {
            let s = args.shapes();
            matmul(s.get(1)?.as_ref()?, s.get(2)?.as_ref()?)
        }
        ShapeRule::Einsum => einsum(args),
        ShapeRule::Factory | ShapeRule::New | ShapeRule::Full => Some(Shape(args.any_sizes()?)),
        ShapeRule::Sized => args.given.iter().find_map(|g| match g {
            Given::Ints(sizes) => Some(Shape(sizes.clone())),
            _ => None,
        }),
        ShapeRule::Arange | ShapeRule::OneDim => Some(Shape(vec![None])),
        ShapeRule::Loss => loss(args),
        ShapeRule::Tensor | ShapeRule::Getitem | ShapeRule::Setitem | ShapeRule::ClassLoss | ShapeRule::None => None,
        ShapeRule::Pad | ShapeRule::SameRank => args.first().map(|s| Shape(vec![None; s.rank()])),
        ShapeRule::Embedding => {
            let s = args.shapes();
            let index = args.given.first().and_then(|g| match g {
                Given::Tensor(s) => s.clone(),
                _ => None,
            });
            let mut out = index?;
            out.0.push(s.iter().flatten().find(|w| w.rank() == 2).and_then(|w| w.0[1]));
            Some(out)
        }
        ShapeRule::OneHot => args.first().map(|mut s| {
            s.0.push(args.int("num_classes").filter(|n| *n >= 0));
            s
        }),
        ShapeRule::LastDim => args.first().map(|mut s| {
            if let Some(last) = s.0.last_mut() {
                *last = None;
            }
            s
        }),
        ShapeRule::Split | ShapeRule::Chunk | ShapeRule::Unbind => None,
        _ => view(rule, args),
    }
}

fn view(rule: ShapeRule, args: &ShapeArgs<'_>) -> Option<Shape> {
    let input = args.first();
    match rule {
        ShapeRule::View => reshape(input.as_ref(), args),
        ShapeRule::ViewAs | ShapeRule::ExpandAs | ShapeRule::Gather => {
            args.given.iter().skip(1).find_map(|g| match g {
                Given::Tensor(s) => Some(s.clone()),
                _ => None,
            })?
        }
        ShapeRule::Flatten => flatten(&input?, args.int("start_dim"), args.int("end_dim")),
        ShapeRule::Unflatten => {
            let mut s = input?;
            let at = s.dim(args.int("dim")?)?;
            let sizes = args.sizes("sizes").or_else(|| args.sizes("unflattened_size"))?;
            s.0.splice(at..=at, sizes.into_iter().map(|d| d.filter(|n| *n >= 0)));
            Some(s)
        }
        ShapeRule::T | ShapeRule::Mt => {
            let mut s = input?;
            let n = s.rank();
            if n >= 2 {
                s.0.swap(n - 2, n - 1);
            }
            Some(s)
        }
        ShapeRule::Reversed => input.map(|mut s| {
            s.0.reverse();
            s
        }),
        ShapeRule::Transpose => {
            let mut s = input?;
            let (a, b) = (args.int("dim0")?, args.int("dim1")?);
            if s.rank() == 0 {
                // The dims of a scalar are those of one dim.
                return [a, b].iter().all(|d| matches!(d, 0 | -1)).then_some(s);
            }
            let (a, b) = (s.dim(a)?, s.dim(b)?);
            s.0.swap(a, b);
            Some(s)
        }
        ShapeRule::Permute => {
            let s = input?;
            let dims = args.sizes("dims").or_else(|| args.any_sizes())?;
            dims.iter().map(|d| Some(s.0[s.dim((*d)?)?])).collect::<Option<Vec<_>>>().map(Shape)
        }
        ShapeRule::Squeeze => squeeze(&input?, args),
        ShapeRule::Unsqueeze => {
            let mut s = input?;
            let at = crate::types::normalize_dim(args.int("dim")?, s.rank() + 1)?;
            s.0.insert(at, Some(1));
            Some(s)
        }
        ShapeRule::Expand => {
            let sizes = args.any_sizes()?;
            let s = input?;
            let skip = sizes.len().checked_sub(s.rank())?;
            Some(Shape(
                sizes
                    .iter()
                    .enumerate()
                    .map(|(i, d)| if *d == Some(-1) && i >= skip { s.0[i - skip] } else { *d })
                    .collect(),
            ))
        }
        ShapeRule::Repeat | ShapeRule::Tile => {
            let sizes = args.any_sizes()?;
            let s = input?;
            let n = sizes.len().max(s.rank());
            let at = |v: &[Dim], i: usize| (i + v.len()).checked_sub(n).map_or(Some(1), |k| v[k]);
            Some(Shape((0..n).map(|i| Some(at(&sizes, i)? * at(&s.0, i)?)).collect()))
        }
        ShapeRule::Movedim => input.map(|s| Shape(vec![None; s.rank()])),
        _ => parts(rule, args),
    }
}

/// Shapes of operations that put parts together or take them.
fn parts(rule: ShapeRule, args: &ShapeArgs<'_>) -> Option<Shape> {
    let input = args.first();
    match rule {
        ShapeRule::Cat => cat(&args.shapes(), args.int("dim").unwrap_or(0)),
        ShapeRule::Stack => {
            let mut s = args.shapes().into_iter().next()??;
            let n = i64::try_from(args.shapes().len()).ok();
            let at = crate::types::normalize_dim(args.int("dim").unwrap_or(0), s.rank() + 1)?;
            s.0.insert(at, n);
            Some(s)
        }
        ShapeRule::Narrow => with_dim(input?, args.int("dim")?, args.int("length")),
        ShapeRule::IndexSelect => with_dim(input?, args.int("dim")?, None),
        ShapeRule::RepeatInterleave => match args.int("dim") {
            Some(dim) => with_dim(input?, dim, None),
            None => Some(Shape(vec![None])),
        },
        ShapeRule::Topk => with_dim(input?, args.int("dim").unwrap_or(-1), args.int("k")),
        ShapeRule::Select => {
            let mut s = input?;
            let at = s.dim(args.int("dim")?)?;
            s.0.remove(at);
            Some(s)
        }
        ShapeRule::Diagonal => {
            let s = input?;
            let mut out = s.0[..s.rank().checked_sub(2)?].to_vec();
            out.push(None);
            Some(Shape(out))
        }
        _ => None,
    }
}

fn several(rule: ShapeRule, args: &ShapeArgs<'_>) -> Shapes {
    let Some(input) = args.first() else { return Shapes::Many(count_without_shape(rule, args), None) };
    let dim = args.int("dim").unwrap_or(0);
    let Some(at) = input.dim(dim) else { return Shapes::Many(None, None) };
    let size = input.0[at];
    match rule {
        ShapeRule::Unbind => {
            let mut out = input.clone();
            out.0.remove(at);
            Shapes::Many(size.and_then(|n| usize::try_from(n).ok()), Some(out))
        }
        ShapeRule::Chunk => {
            let chunks = args.int("chunks").filter(|n| *n > 0);
            let each = size.zip(chunks).map(|(s, n)| (s + n - 1) / n);
            let count = match (size, each) {
                (Some(s), Some(e)) if e > 0 => usize::try_from((s + e - 1) / e).ok(),
                _ => chunks.and_then(|n| usize::try_from(n).ok()),
            };
            let even = size.zip(chunks).is_some_and(|(s, n)| s % n == 0);
            Shapes::Many(count, with_dim(input, dim, each.filter(|_| even)))
        }
        _ => {
            let names = ["split_size_or_sections", "split_size", "indices_or_sections"];
            let given = names.iter().map(|n| args.named(n)).find(|g| !matches!(g, Given::Absent));
            match given {
                Some(Given::Ints(parts)) => Shapes::Many(Some(parts.len()), with_dim(input, dim, None)),
                Some(Given::Int(Some(each))) if *each > 0 => {
                    let count = size.and_then(|s| usize::try_from((s + each - 1) / each).ok());
                    let even = size.is_some_and(|s| s % each == 0);
                    Shapes::Many(count, with_dim(input, dim, Some(*each).filter(|_| even)))
                }
                _ => Shapes::Many(None, with_dim(input, dim, None)),
            }
        }
    }
}

fn count_without_shape(rule: ShapeRule, args: &ShapeArgs<'_>) -> Option<usize> {
    match rule {
        ShapeRule::Chunk => args.int("chunks").and_then(|n| usize::try_from(n).ok()),
        ShapeRule::Split => match args.named("split_size_or_sections") {
            Given::Ints(parts) => Some(parts.len()),
            _ => None,
        },
        _ => None,
    }
}

fn with_dim(mut s: Shape, dim: i64, size: Dim) -> Option<Shape> {
    let at = s.dim(dim)?;
    s.0[at] = size;
    Some(s)
}

/// Broadcasting of all shapes; unknown as soon as one is.
pub fn broadcast(shapes: &[Option<Shape>]) -> Option<Shape> {
    let mut out = shapes.first()?.clone()?;
    for s in shapes {
        let s = s.as_ref()?;
        let n = out.rank().max(s.rank());
        let at = |v: &Shape, i: usize| (i + v.rank()).checked_sub(n).map_or(Some(1), |k| v.0[k]);
        out = Shape(
            (0..n)
                .map(|i| match (at(&out, i), at(s, i)) {
                    (Some(1), d) | (d, Some(1)) => d,
                    (a, b) => a.or(b),
                })
                .collect(),
        );
    }
    Some(out)
}

fn matmul(a: &Shape, b: &Shape) -> Option<Shape> {
    match (a.rank(), b.rank()) {
        (0, _) | (_, 0) => None,
        (1, 1) => Some(Shape(vec![])),
        (1, n) => {
            let mut out = b.0.clone();
            out.remove(n - 2);
            Some(Shape(out))
        }
        (n, 1) => Some(Shape(a.0[..n - 1].to_vec())),
        (n, m) => {
            let batch = broadcast(&[Some(Shape(a.0[..n - 2].to_vec())), Some(Shape(b.0[..m - 2].to_vec()))])?;
            let mut out = batch.0;
            out.extend([a.0[n - 2], b.0[m - 1]]);
            Some(Shape(out))
        }
    }
}

/// The dims of a reduction: one, several, or all when absent.
fn reduce(args: &ShapeArgs<'_>) -> Option<Shape> {
    let keep = matches!(args.named("keepdim"), Given::Bool(true));
    let input = args.first();
    let dims = match args.named("dim") {
        Given::Int(n) => vec![(*n)?],
        Given::Ints(list) => list.iter().copied().collect::<Option<Vec<_>>>()?,
        Given::Absent | Given::Nothing => {
            return match (keep, input) {
                (false, _) => Some(Shape(vec![])),
                (true, s) => s.map(|s| Shape(vec![Some(1); s.rank()])),
            };
        }
        _ => return None,
    };
    let input = input?;
    if input.rank() == 0 {
        return Some(input);
    }
    let mut drop = vec![false; input.rank()];
    for d in dims {
        drop[input.dim(d)?] = true;
    }
    let sizes = input.0.iter().zip(&drop).filter_map(|(size, gone)| match (gone, keep) {
        (false, _) => Some(*size),
        (true, true) => Some(Some(1)),
        (true, false) => None,
    });
    Some(Shape(sizes.collect()))
}

fn reshape(input: Option<&Shape>, args: &ShapeArgs<'_>) -> Option<Shape> {
    let mut sizes = args.any_sizes()?;
    let total: Option<i64> = input.and_then(|s| s.0.iter().copied().try_fold(1i64, |n, d| n.checked_mul(d?)));
    let known: Option<i64> = sizes.iter().filter(|d| **d != Some(-1)).copied().try_fold(1i64, |n, d| n.checked_mul(d?));
    for d in &mut sizes {
        if *d == Some(-1) {
            *d = total.zip(known).and_then(|(t, k)| t.checked_div(k));
        }
    }
    Some(Shape(sizes))
}

fn flatten(s: &Shape, start: Option<i64>, end: Option<i64>) -> Option<Shape> {
    if s.rank() == 0 {
        return Some(Shape(vec![Some(1)]));
    }
    let (start, end) = (s.dim(start.unwrap_or(0))?, s.dim(end.unwrap_or(-1))?);
    if start > end {
        return None;
    }
    let mut out = s.0[..start].to_vec();
    out.push(s.0[start..=end].iter().copied().try_fold(1i64, |n, d| n.checked_mul(d?)));
    out.extend_from_slice(&s.0[end + 1..]);
    Some(Shape(out))
}

fn squeeze(s: &Shape, args: &ShapeArgs<'_>) -> Option<Shape> {
    if args.absent("dim") {
        if s.0.contains(&None) {
            return None;
        }
        return Some(Shape(s.0.iter().copied().filter(|d| *d != Some(1)).collect()));
    }
    let mut out = s.clone();
    let at = s.dim(args.int("dim")?)?;
    match s.0[at] {
        Some(1) => {
            out.0.remove(at);
            Some(out)
        }
        Some(_) => Some(out),
        None => None,
    }
}

fn cat(shapes: &[Option<Shape>], dim: i64) -> Option<Shape> {
    let mut out = shapes.first()?.clone()?;
    let at = out.dim(dim)?;
    for s in &shapes[1..] {
        let size = s.as_ref().and_then(|s| s.0.get(at).copied()).flatten();
        out.0[at] = out.0[at].zip(size).map(|(a, b)| a + b);
    }
    Some(out)
}

/// A loss is a scalar unless it is told to keep its terms.
fn loss(args: &ShapeArgs<'_>) -> Option<Shape> {
    match args.named("reduction") {
        Given::Absent => Some(Shape(vec![])),
        Given::Str(s) if s != "none" => Some(Shape(vec![])),
        Given::Str(_) => broadcast(&args.shapes()),
        _ => None,
    }
}

/// The shape of an einsum whose equation is a constant without an ellipsis.
fn einsum(args: &ShapeArgs<'_>) -> Option<Shape> {
    let Given::Str(equation) = args.given.first()? else { return None };
    let (inputs, output) = equation.split_once("->")?;
    if equation.contains('.') {
        return None;
    }
    let shapes = args.shapes();
    let mut sizes: Vec<(char, Dim)> = Vec::new();
    for (term, shape) in inputs.split(',').zip(&shapes) {
        for (i, c) in term.trim().chars().enumerate() {
            let size = shape.as_ref().and_then(|s| s.0.get(i).copied()).flatten();
            sizes.push((c, size));
        }
    }
    let size_of = |c: char| sizes.iter().filter(|(d, _)| *d == c).find_map(|(_, s)| *s);
    Some(Shape(output.trim().chars().map(size_of).collect()))
}
