//! What a tensor is as a function of the arguments of an autograd function: a chain of collectives, parts and local mathematics.
//!
//! In: the steps of `forward` and `backward`, one constructor each, which put the spelled-out forms (lists of chunks that are sent and
//! concatenated) together into the collective that they amount to. Out: [`Term`]. Never: types. Source: DESIGN.md section 6.
//! Next: `infer/autograd/`.

use super::AxisSet;
use std::sync::Arc;

/// How ranks combine their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Sum,
    Mean,
    /// A maximum, a product, or something that is not known.
    Other,
}

/// How local mathematics treats its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linearity {
    /// Linear in all operands together.
    Linear,
    /// Linear in each operand.
    Multilinear,
    Nonlinear,
}

/// A tensor by how it was computed. Dims count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// A tensor argument of `forward`, by parameter.
    Arg(usize),
    /// The gradient of an output, by position.
    Grad(usize),
    /// Memory that nothing was written to.
    Fresh,
    /// A constant: equal on all ranks.
    Equal,
    AllReduce {
        axes: AxisSet,
        by: Reduction,
        x: Arc<Term>,
    },
    AllGather {
        axes: AxisSet,
        dim: usize,
        x: Arc<Term>,
    },
    ReduceScatter {
        axes: AxisSet,
        dim: usize,
        by: Reduction,
        x: Arc<Term>,
    },
    /// Each rank sends its parts along `split` and joins what it gets along `concat`.
    AllToAll {
        axes: AxisSet,
        split: usize,
        concat: usize,
        x: Arc<Term>,
    },
    /// The rank's own part.
    Split {
        axes: AxisSet,
        dim: usize,
        x: Arc<Term>,
    },
    /// What the first rank has.
    Broadcast {
        axes: AxisSet,
        x: Arc<Term>,
    },
    /// Multiplied, or divided, by the number of ranks.
    Scale {
        axes: AxisSet,
        up: bool,
        x: Arc<Term>,
    },
    /// The value on the first rank, zero on the others.
    Mask {
        axes: AxisSet,
        x: Arc<Term>,
    },
    /// Any one of the parts along a dim, one for each rank.
    Chunk {
        dim: usize,
        x: Arc<Term>,
    },
    /// A part along a dim that is the same one on every rank.
    Fixed {
        dim: usize,
        at: i64,
        x: Arc<Term>,
    },
    /// What any one of the ranks has.
    Gathered {
        axes: AxisSet,
        x: Arc<Term>,
    },
    /// The part that any one of the ranks sent to this one.
    Exchanged {
        axes: AxisSet,
        split: usize,
        x: Arc<Term>,
    },
    /// The parts along one dim, joined along another.
    Moved {
        from: usize,
        to: usize,
        x: Arc<Term>,
    },
    /// Parts, one for each rank, along a dim of their own.
    Stacked {
        at: usize,
        part: Arc<Term>,
    },
    /// Two dims exchanged; kept outside of collectives, whose dims change with it.
    Swapped {
        a: usize,
        b: usize,
        x: Arc<Term>,
    },
    /// Local mathematics.
    Math {
        linearity: Linearity,
        operands: Vec<Arc<Term>>,
    },
    Unknown,
}

impl Term {
    /// What is one of two. Memory that nothing was written to is not read, and a loop that adds something up runs.
    pub fn either(a: &Arc<Term>, b: &Arc<Term>) -> Arc<Term> {
        let adds = |sum: &Term, start: &Arc<Term>| match sum {
            Term::Math { linearity: Linearity::Linear, operands } => operands.contains(start),
            _ => false,
        };
        match (a.as_ref(), b.as_ref()) {
            _ if a == b => a.clone(),
            (Term::Fresh, _) => b.clone(),
            (_, Term::Fresh) => a.clone(),
            _ if adds(a, b) => a.clone(),
            _ if adds(b, a) => b.clone(),
            _ => Arc::new(Term::Unknown),
        }
    }

    /// Local mathematics. A sum of sums is one sum, and so is whatever of whatever, so that what a loop adds up comes to an end.
    pub fn math(linearity: Linearity, operands: Vec<Arc<Term>>) -> Term {
        let linearity =
            if operands.len() == 1 && linearity == Linearity::Multilinear { Linearity::Linear } else { linearity };
        if linearity == Linearity::Multilinear {
            return Term::Math { linearity, operands };
        }
        let mut flat: Vec<Arc<Term>> = Vec::new();
        let mut add = |x: &Arc<Term>| {
            if !flat.contains(x) {
                flat.push(x.clone());
            }
        };
        for operand in &operands {
            match operand.as_ref() {
                Term::Math { linearity: inner, operands }
                    if *inner == linearity || linearity == Linearity::Nonlinear =>
                {
                    operands.iter().for_each(&mut add);
                }
                _ => add(operand),
            }
        }
        Term::Math { linearity, operands: flat }
    }

    /// Two dims exchanged; twice the same is nothing.
    pub fn swapped(x: &Arc<Term>, a: usize, b: usize) -> Term {
        let (a, b) = (a.min(b), a.max(b));
        match x.as_ref() {
            _ if a == b => x.as_ref().clone(),
            Term::Swapped { a: c, b: d, x } if (a, b) == (*c, *d) => x.as_ref().clone(),
            Term::Unknown => Term::Unknown,
            _ => Term::Swapped { a, b, x: x.clone() },
        }
    }

    /// A step along dims of a tensor whose dims were exchanged is the step along the dims before, and the exchange after it.
    pub fn through(x: &Arc<Term>, dims: &[usize], step: impl Fn(&Arc<Term>, &[usize]) -> Term) -> Term {
        match x.as_ref() {
            Term::Swapped { a, b, x } => {
                let before: Vec<usize> = dims
                    .iter()
                    .map(|d| {
                        if d == a {
                            *b
                        } else if d == b {
                            *a
                        } else {
                            *d
                        }
                    })
                    .collect();
                let inner = Arc::new(Term::through(x, &before, step));
                Term::swapped(&inner, *a, *b)
            }
            _ => step(x, dims),
        }
    }

    /// Any part of a tensor along a dim.
    pub fn chunk(x: &Arc<Term>, dim: usize) -> Term {
        Term::through(x, &[dim], |x, dims| Term::plain_chunk(x, dims[0]))
    }

    fn plain_chunk(x: &Arc<Term>, dim: usize) -> Term {
        match x.as_ref() {
            Term::AllGather { axes, dim: d, x } if *d == dim => Term::Gathered { axes: axes.clone(), x: x.clone() },
            Term::AllToAll { axes, split, concat, x } if *concat == dim => {
                Term::Exchanged { axes: axes.clone(), split: *split, x: x.clone() }
            }
            Term::Unknown => Term::Unknown,
            _ => Term::Chunk { dim, x: x.clone() },
        }
    }

    /// Parts of one kind joined along a dim.
    pub fn cat(part: &Arc<Term>, dim: usize) -> Term {
        Term::through(part, &[dim], |x, dims| Term::plain_cat(x, dims[0]))
    }

    fn plain_cat(part: &Arc<Term>, dim: usize) -> Term {
        match part.as_ref() {
            Term::Gathered { axes, x } => Term::AllGather { axes: axes.clone(), dim, x: x.clone() },
            Term::Exchanged { axes, split, x } => {
                Term::AllToAll { axes: axes.clone(), split: *split, concat: dim, x: x.clone() }
            }
            Term::Chunk { dim: from, x } if *from == dim => x.as_ref().clone(),
            Term::Chunk { dim: from, x } => match x.as_ref() {
                // Joined along one dim and cut along it again: only the last dim counts.
                Term::Moved { from: first, to, x } if to == from => {
                    if *first == dim {
                        x.as_ref().clone()
                    } else {
                        Term::Moved { from: *first, to: dim, x: x.clone() }
                    }
                }
                _ => Term::Moved { from: *from, to: dim, x: x.clone() },
            },
            _ => Term::Unknown,
        }
    }

    /// The part that belongs to the rank itself.
    pub fn own(part: &Arc<Term>, axes: &AxisSet) -> Term {
        Term::through(part, &[], |x, _| Term::plain_own(x, axes))
    }

    fn plain_own(part: &Arc<Term>, axes: &AxisSet) -> Term {
        match part.as_ref() {
            Term::Chunk { dim, x } => Term::Split { axes: axes.clone(), dim: *dim, x: x.clone() },
            Term::Gathered { axes: over, x } if over == axes => x.as_ref().clone(),
            Term::Exchanged { axes: over, split, x } if over == axes => {
                Term::Split { axes: axes.clone(), dim: *split, x: x.clone() }
            }
            _ => Term::Unknown,
        }
    }

    /// The sum over ranks of a tensor, of which each keeps its part along the first dim.
    pub fn reduce_scatter(x: &Arc<Term>, axes: &AxisSet, by: Reduction, dim: usize) -> Term {
        Term::through(x, &[dim], |x, dims| Term::plain_reduce_scatter(x, axes.clone(), by, dims[0]))
    }

    fn plain_reduce_scatter(x: &Arc<Term>, axes: AxisSet, by: Reduction, dim: usize) -> Term {
        match x.as_ref() {
            Term::Moved { from, to, x } if *to == dim => Term::ReduceScatter { axes, dim: *from, by, x: x.clone() },
            Term::Chunk { dim, x } => Term::ReduceScatter { axes, dim: *dim, by, x: x.clone() },
            Term::Unknown => Term::Unknown,
            _ => Term::ReduceScatter { axes, dim, by, x: x.clone() },
        }
    }

    /// Parts along the first dim exchanged and joined along it.
    pub fn all_to_all(x: &Arc<Term>, axes: &AxisSet) -> Term {
        Term::through(x, &[0, 0], |x, dims| match x.as_ref() {
            Term::Moved { from, to, x } if *to == dims[0] => {
                Term::AllToAll { axes: axes.clone(), split: *from, concat: dims[1], x: x.clone() }
            }
            Term::Stacked { at: 0, part } => {
                Term::Stacked { at: 0, part: Arc::new(Term::exchanged(part, axes.clone())) }
            }
            Term::Unknown => Term::Unknown,
            _ => Term::AllToAll { axes: axes.clone(), split: dims[0], concat: dims[1], x: x.clone() },
        })
    }

    /// What a list of parts is after each was sent to its rank.
    pub fn exchanged(part: &Arc<Term>, axes: AxisSet) -> Term {
        match part.as_ref() {
            Term::Chunk { dim, x } => Term::Exchanged { axes, split: *dim, x: x.clone() },
            _ => Term::Unknown,
        }
    }

    /// The term below, for a step with one operand.
    pub fn inner(&self) -> Option<&Arc<Term>> {
        match self {
            Term::AllReduce { x, .. }
            | Term::AllGather { x, .. }
            | Term::ReduceScatter { x, .. }
            | Term::AllToAll { x, .. }
            | Term::Split { x, .. }
            | Term::Broadcast { x, .. }
            | Term::Scale { x, .. }
            | Term::Mask { x, .. }
            | Term::Chunk { x, .. }
            | Term::Fixed { x, .. }
            | Term::Gathered { x, .. }
            | Term::Exchanged { x, .. }
            | Term::Moved { x, .. }
            | Term::Swapped { x, .. }
            | Term::Stacked { part: x, .. } => Some(x),
            Term::Arg(_) | Term::Grad(_) | Term::Fresh | Term::Equal | Term::Math { .. } | Term::Unknown => None,
        }
    }

    /// The axes over which ranks are told apart in this step.
    pub fn axes(&self) -> Option<&AxisSet> {
        match self {
            Term::AllReduce { axes, .. }
            | Term::AllGather { axes, .. }
            | Term::ReduceScatter { axes, .. }
            | Term::AllToAll { axes, .. }
            | Term::Split { axes, .. }
            | Term::Broadcast { axes, .. }
            | Term::Scale { axes, .. }
            | Term::Mask { axes, .. }
            | Term::Gathered { axes, .. }
            | Term::Exchanged { axes, .. } => Some(axes),
            _ => None,
        }
    }

    /// The term without multiplications and divisions by the number of ranks.
    #[must_use]
    pub fn without_factors(&self) -> Term {
        match self {
            Term::Scale { x, .. } => x.without_factors(),
            other => other.with_inner(|x| Arc::new(x.without_factors())),
        }
    }

    /// The term as one group sees it: steps over other groups are local, and linear unless they take a maximum or the like.
    #[must_use]
    pub fn only_over(&self, group: &AxisSet) -> Term {
        let of = |x: &Arc<Term>| Arc::new(x.only_over(group));
        if let (Some(axes), Some(x)) = (self.axes(), self.inner())
            && axes != group
        {
            let other = matches!(
                self,
                Term::AllReduce { by: Reduction::Other, .. } | Term::ReduceScatter { by: Reduction::Other, .. }
            );
            return match other {
                true => Term::Math { linearity: Linearity::Nonlinear, operands: vec![of(x)] },
                false => x.only_over(group),
            };
        }
        self.with_inner(of)
    }

    /// The term on other tensors than those that it starts from, put together again.
    #[must_use]
    pub fn on(&self, start: &dyn Fn(&Term) -> Option<Arc<Term>>) -> Term {
        if let Some(other) = start(self) {
            return other.as_ref().clone();
        }
        let rebuilt = self.with_inner(|x| Arc::new(x.on(start)));
        match &rebuilt {
            Term::AllToAll { axes, split, concat, x } => match x.as_ref() {
                Term::Moved { from, to, x } if to == split => {
                    Term::AllToAll { axes: axes.clone(), split: *from, concat: *concat, x: x.clone() }
                }
                _ => rebuilt,
            },
            Term::Moved { from, to, x } => match x.as_ref() {
                Term::AllToAll { axes, split, concat, x } if concat == from => {
                    Term::AllToAll { axes: axes.clone(), split: *split, concat: *to, x: x.clone() }
                }
                _ => rebuilt,
            },
            _ => rebuilt,
        }
    }

    /// What a chain that only moves parts around does, undone, on a tensor; that is also how gradients go back through it.
    #[must_use]
    pub fn undone(&self, x: &Arc<Term>) -> Term {
        match self {
            Term::Moved { from, to, x: inner } => {
                let back = Term::Moved { from: *to, to: *from, x: Arc::new(Term::Grad(usize::MAX)) };
                inner.undone(&Arc::new(back.on(&|t| (*t == Term::Grad(usize::MAX)).then(|| x.clone()))))
            }
            Term::Swapped { a, b, x: inner } => inner.undone(&Arc::new(Term::swapped(x, *a, *b))),
            _ => x.as_ref().clone(),
        }
    }

    /// The term where every rank takes its own part along a dim, not the same one.
    #[must_use]
    pub fn with_own_parts(&self, axes: &AxisSet) -> Term {
        match self {
            Term::Fixed { dim, x, .. } => {
                Term::Split { axes: axes.clone(), dim: *dim, x: Arc::new(x.with_own_parts(axes)) }
            }
            other => other.with_inner(|x| Arc::new(x.with_own_parts(axes))),
        }
    }

    /// The same step on other operands.
    #[must_use]
    pub fn with_inner(&self, of: impl Fn(&Arc<Term>) -> Arc<Term>) -> Term {
        let mut out = self.clone();
        match &mut out {
            Term::Math { operands, .. } => operands.iter_mut().for_each(|o| *o = of(o)),
            Term::AllReduce { x, .. }
            | Term::AllGather { x, .. }
            | Term::ReduceScatter { x, .. }
            | Term::AllToAll { x, .. }
            | Term::Split { x, .. }
            | Term::Broadcast { x, .. }
            | Term::Scale { x, .. }
            | Term::Mask { x, .. }
            | Term::Chunk { x, .. }
            | Term::Fixed { x, .. }
            | Term::Gathered { x, .. }
            | Term::Exchanged { x, .. }
            | Term::Moved { x, .. }
            | Term::Swapped { x, .. }
            | Term::Stacked { part: x, .. } => *x = of(x),
            Term::Arg(_) | Term::Grad(_) | Term::Fresh | Term::Equal | Term::Unknown => {}
        }
        out
    }

    /// Every step, this one first.
    pub fn steps(&self) -> Vec<&Term> {
        let mut out = Vec::new();
        self.add_steps(&mut out);
        out
    }

    fn add_steps<'a>(&'a self, out: &mut Vec<&'a Term>) {
        out.push(self);
        match self {
            Term::Math { operands, .. } => operands.iter().for_each(|o| o.add_steps(out)),
            other => {
                if let Some(x) = other.inner() {
                    x.add_steps(out);
                }
            }
        }
    }

    /// Whether ranks communicate in this step.
    pub fn communicates(&self) -> bool {
        matches!(
            self,
            Term::AllReduce { .. }
                | Term::AllGather { .. }
                | Term::ReduceScatter { .. }
                | Term::AllToAll { .. }
                | Term::Broadcast { .. }
        )
    }

    /// Whether ranks exchange anything on the way to a term.
    pub fn exchanges(&self) -> bool {
        self.steps().iter().any(|step| step.communicates())
    }
}
