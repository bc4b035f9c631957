//! Which signatures a forward and a backward have together, decided by the definition on three ranks with small tensors.
//!
//! In: two chains of collectives. Out: every pair `s -> d` for which the forward is a well-defined map on meanings and the backward
//! takes every representation of a gradient to a representation of the true pull-back. Never: local mathematics.
//! Source: DESIGN.md section 2 (definition) and 6. Next: `meaning.rs`.

use crate::types::{Reduction, Spmd, Term};

/// Ranks of the group; two would hide that a mean is no sum.
const RANKS: usize = 3;
/// Size of a dim, which chains may divide twice.
const SIZE: usize = RANKS * RANKS;
/// Random examples of each check.
const TRIALS: usize = 3;
const TOLERANCE: f64 = 1e-6;

/// A dense tensor.
#[derive(Clone, Debug)]
struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Array {
    fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array { shape: self.shape.clone(), data: self.data.iter().map(|v| f(*v)).collect() }
    }
    fn add(&self, other: &Array) -> Option<Array> {
        let data = self.data.iter().zip(&other.data).map(|(a, b)| a + b).collect();
        (self.shape == other.shape).then(|| Array { shape: self.shape.clone(), data })
    }
    fn close(&self, other: &Array) -> bool {
        self.shape == other.shape && self.data.iter().zip(&other.data).all(|(a, b)| (a - b).abs() < TOLERANCE)
    }
    fn dot(&self, other: &Array) -> f64 {
        self.data.iter().zip(&other.data).map(|(a, b)| a * b).sum()
    }
    /// Blocks before a dim, and the elements of one index of it.
    fn strides(&self, dim: usize) -> (usize, usize) {
        (self.shape[..dim].iter().product(), self.shape[dim + 1..].iter().product())
    }
    /// One of as many parts as there are ranks.
    fn part(&self, dim: usize, rank: usize) -> Option<Array> {
        let n = *self.shape.get(dim)?;
        if n % RANKS != 0 {
            return None;
        }
        let (outer, inner) = self.strides(dim);
        let width = n / RANKS * inner;
        let mut data = Vec::with_capacity(outer * width);
        for block in 0..outer {
            let start = block * n * inner + rank * width;
            data.extend_from_slice(&self.data[start..start + width]);
        }
        let mut shape = self.shape.clone();
        shape[dim] = n / RANKS;
        Some(Array { shape, data })
    }
    /// Two dims exchanged.
    fn swapped(&self, a: usize, b: usize) -> Array {
        let mut shape = self.shape.clone();
        shape.swap(a, b);
        let stride = |shape: &[usize], dim: usize| shape[dim + 1..].iter().product::<usize>();
        let data = (0..self.data.len())
            .map(|at| {
                let index = |dim: usize| at / stride(&shape, dim) % shape[dim];
                let from = |dim: usize| {
                    if dim == a {
                        index(b)
                    } else if dim == b {
                        index(a)
                    } else {
                        index(dim)
                    }
                };
                self.data[(0..shape.len()).map(|d| from(d) * stride(&self.shape, d)).sum::<usize>()]
            })
            .collect();
        Array { shape, data }
    }
    fn concat(parts: &[Array], dim: usize) -> Option<Array> {
        let first = parts.first()?;
        let mut shape = first.shape.clone();
        *shape.get_mut(dim)? = parts.iter().map(|p| p.shape[dim]).sum();
        let (outer, _) = first.strides(dim);
        let mut data = Vec::new();
        for block in 0..outer {
            for part in parts {
                let width = part.data.len() / outer;
                data.extend_from_slice(&part.data[block * width..(block + 1) * width]);
            }
        }
        Some(Array { shape, data })
    }
}

fn sum(parts: &[Array]) -> Option<Array> {
    let mut parts = parts.iter();
    let first = parts.next()?.clone();
    parts.try_fold(first, |a, b| a.add(b))
}

fn equal(parts: &[Array]) -> bool {
    parts.iter().all(|p| p.close(&parts[0]))
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f64) / f64::from(1 << 23) - 1.0
    }
    fn array(&mut self, shape: &[usize]) -> Array {
        let n = shape.iter().product();
        Array { shape: shape.to_vec(), data: (0..n).map(|_| self.next()).collect() }
    }
    /// The values on the ranks of something of this type.
    fn sample(&mut self, t: Spmd, shape: &[usize]) -> Vec<Array> {
        match t {
            Spmd::Replicate | Spmd::Invariant => vec![self.array(shape); RANKS],
            Spmd::Varying | Spmd::Partial => (0..RANKS).map(|_| self.array(shape)).collect(),
        }
    }
    /// Further terms of a sum of zero.
    fn noise(&mut self, shape: &[usize]) -> Vec<Array> {
        let mut out: Vec<Array> = (1..RANKS).map(|_| self.array(shape)).collect();
        let last = sum(&out).expect("arrays of one shape add").map(|v| -v);
        out.push(last);
        out
    }
}

/// The values of a chain on every rank, given those of what it starts from. `None`: not a chain of collectives, or sizes that do not fit.
fn run(term: &Term, start: &[Array]) -> Option<Vec<Array>> {
    let x = match term {
        Term::Arg(_) | Term::Grad(_) => return Some(start.to_vec()),
        other => run(other.inner()?, start)?,
    };
    let ranks = 0..RANKS;
    Some(match term {
        Term::AllReduce { by, .. } => vec![reduced(&x, *by)?; RANKS],
        Term::AllGather { dim, .. } => vec![Array::concat(&x, *dim)?; RANKS],
        Term::ReduceScatter { dim, by, .. } => {
            let whole = reduced(&x, *by)?;
            ranks.map(|r| whole.part(*dim, r)).collect::<Option<_>>()?
        }
        Term::AllToAll { split, concat, .. } => {
            let exchange = |r: usize| {
                let parts: Option<Vec<Array>> = x.iter().map(|y| y.part(*split, r)).collect();
                Array::concat(&parts?, *concat)
            };
            ranks.map(exchange).collect::<Option<_>>()?
        }
        Term::Split { dim, .. } => ranks.zip(&x).map(|(r, y)| y.part(*dim, r)).collect::<Option<_>>()?,
        Term::Broadcast { .. } => vec![x[0].clone(); RANKS],
        Term::Scale { up, .. } => {
            let k = if *up { RANKS as f64 } else { 1.0 / RANKS as f64 };
            x.iter().map(|y| y.map(|v| v * k)).collect()
        }
        Term::Mask { .. } => ranks.zip(&x).map(|(r, y)| if r == 0 { y.clone() } else { y.map(|_| 0.0) }).collect(),
        Term::Moved { from, to, .. } => {
            let moved = |y: &Array| {
                let parts: Option<Vec<Array>> = (0..RANKS).map(|r| y.part(*from, r)).collect();
                Array::concat(&parts?, *to)
            };
            x.iter().map(moved).collect::<Option<_>>()?
        }
        Term::Swapped { a, b, .. } => x.iter().map(|y| y.swapped(*a, *b)).collect(),
        Term::Chunk { .. }
        | Term::Fixed { .. }
        | Term::Gathered { .. }
        | Term::Exchanged { .. }
        | Term::Stacked { .. }
        | Term::Math { .. }
        | Term::Arg(_)
        | Term::Grad(_)
        | Term::Fresh
        | Term::Equal
        | Term::Unknown => return None,
    })
}

fn reduced(x: &[Array], by: Reduction) -> Option<Array> {
    match by {
        Reduction::Sum => sum(x),
        Reduction::Mean => Some(sum(x)?.map(|v| v / RANKS as f64)),
        Reduction::Other => None,
    }
}

/// What the values on the ranks mean.
fn meaning(t: Spmd, x: &[Array]) -> Option<Array> {
    match t {
        Spmd::Replicate | Spmd::Invariant => Some(x[0].clone()),
        Spmd::Partial => sum(x),
        Spmd::Varying => Array::concat(x, 0),
    }
}

/// A representation of a gradient for a value of this type: the gradient of R is a pending sum, of P an equal value.
fn gradient(numbers: &mut Numbers, t: Spmd, g: &Array) -> Option<Vec<Array>> {
    match t {
        Spmd::Replicate => {
            let mut parts = numbers.noise(&g.shape);
            let last = parts.last_mut()?;
            *last = last.add(g)?;
            Some(parts)
        }
        Spmd::Invariant | Spmd::Partial => Some(vec![g.clone(); RANKS]),
        Spmd::Varying => {
            // The meaning of a varying value lists those of the ranks along the first dim.
            (0..RANKS).map(|r| g.part(0, r)).collect()
        }
    }
}

/// The largest dim that a chain names.
fn rank_of(terms: [&Term; 2]) -> usize {
    let dims = terms.into_iter().flat_map(Term::steps).map(|t| match t {
        Term::AllGather { dim, .. } | Term::ReduceScatter { dim, .. } | Term::Split { dim, .. } => *dim,
        Term::AllToAll { split, concat, .. } => (*split).max(*concat),
        Term::Moved { from, to, .. } => (*from).max(*to),
        Term::Swapped { b, .. } => *b,
        _ => 0,
    });
    dims.max().unwrap_or(0) + 1
}

/// Whether the chain can be decided by examples.
pub fn is_chain(term: &Term) -> bool {
    match term {
        Term::Arg(_) | Term::Grad(_) => true,
        Term::AllReduce { by: Reduction::Other, .. } | Term::ReduceScatter { by: Reduction::Other, .. } => false,
        Term::Chunk { .. } | Term::Fixed { .. } | Term::Gathered { .. } => false,
        Term::Exchanged { .. } | Term::Stacked { .. } => false,
        other => other.inner().is_some_and(|x| is_chain(x)),
    }
}

fn holds(forward: &Term, backward: &Term, s: Spmd, d: Spmd) -> Option<bool> {
    let shape = vec![SIZE; rank_of([forward, backward])];
    let mut numbers = Numbers(0x5eed);
    for _ in 0..TRIALS {
        let (x, dx) = (numbers.sample(s, &shape), numbers.sample(s, &shape));
        let (out, dout) = (run(forward, &x)?, run(forward, &dx)?);
        let equal_out = matches!(d, Spmd::Replicate | Spmd::Invariant);
        if equal_out && !(equal(&out) && equal(&dout)) {
            return Some(false);
        }
        if s == Spmd::Partial {
            // Another representation of the same sum must mean the same afterwards.
            let noise = numbers.noise(&shape);
            let other: Option<Vec<Array>> = x.iter().zip(&noise).map(|(a, b)| a.add(b)).collect();
            let again = run(forward, &other?)?;
            if equal_out && !equal(&again) || !meaning(d, &again)?.close(&meaning(d, &out)?) {
                return Some(false);
            }
        }
        let g = numbers.array(&meaning(d, &out)?.shape);
        let got = run(backward, &gradient(&mut numbers, d, &g)?)?;
        if got[0].shape != shape || matches!(s, Spmd::Invariant | Spmd::Partial) && !equal(&got) {
            return Some(false);
        }
        let pulled = match s {
            Spmd::Replicate => sum(&got)?,
            Spmd::Invariant | Spmd::Partial => got[0].clone(),
            Spmd::Varying => Array::concat(&got, 0)?,
        };
        let (left, right) = (meaning(d, &dout)?.dot(&g), meaning(s, &dx)?.dot(&pulled));
        if (left - right).abs() > TOLERANCE * (1.0 + left.abs()) {
            return Some(false);
        }
    }
    Some(true)
}

/// Every signature of a pair of chains, in the order R, I, V, P of source and result.
pub fn signatures(forward: &Term, backward: &Term) -> Vec<(Spmd, Spmd)> {
    let all = Spmd::ALL.into_iter().flat_map(|s| Spmd::ALL.into_iter().map(move |d| (s, d)));
    all.filter(|(s, d)| holds(forward, backward, *s, *d).unwrap_or(false)).collect()
}

/// Whether the forward only changes how the one tensor is spread over the ranks: its whole is the same before and after.
pub fn keeps_whole(forward: &Term, s: Spmd, from: Option<usize>, d: Spmd, to: Option<usize>) -> bool {
    let rank = rank_of([forward, forward]).max(from.map_or(1, |d| d + 1)).max(to.map_or(1, |d| d + 1));
    let shape = vec![SIZE; rank];
    let mut numbers = Numbers(0xabcd);
    let whole = numbers.array(&shape);
    let spread: Option<Vec<Array>> = match (s, from) {
        (Spmd::Replicate | Spmd::Invariant, _) => Some(vec![whole.clone(); RANKS]),
        (Spmd::Partial, _) => gradient(&mut numbers, Spmd::Replicate, &whole),
        (Spmd::Varying, Some(dim)) => (0..RANKS).map(|r| whole.part(dim, r)).collect(),
        (Spmd::Varying, None) => None,
    };
    let Some(out) = spread.and_then(|x| run(forward, &x)) else { return false };
    let after = match (d, to) {
        (Spmd::Replicate | Spmd::Invariant, _) => Some(out[0].clone()),
        (Spmd::Partial, _) => sum(&out),
        (Spmd::Varying, Some(dim)) => Array::concat(&out, dim),
        (Spmd::Varying, None) => None,
    };
    after.is_some_and(|a| a.close(&whole))
}
