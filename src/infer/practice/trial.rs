//! Conditions over the index of a loop, decided by trying numbers. In: conditions as expressions, of one function. Out: [`Trial`]: their
//! symbols, and whether they hold for given values. Never: a symbol that may change while the loop runs: then there is no trial.
//! Next: `no_sync.rs`.

use super::expr::Expr;
use super::view::View;
use crate::infer::expr::int_compare;
use crate::ir::{BinOp, CmpOp, Const, LocalId, Operand, Stmt, UnOp};

/// Values of numbers that are not known.
const NUMBERS: std::ops::RangeInclusive<i64> = 2..=6;
/// Values of an index.
const INDICES: std::ops::Range<i64> = 0..36;
const MOST_NUMBERS: usize = 3;
const MOST_FLAGS: usize = 5;
const MOST_DEPTH: usize = 12;

/// The index of a loop, and how many rounds it has, where that is said.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    pub local: LocalId,
    pub round: usize,
    /// Its first value, and one more than the last.
    pub first: Expr,
    pub end: Option<Expr>,
}

/// What conditions are about.
#[derive(Default)]
pub struct Trial {
    pub index: Option<Index>,
    numbers: Vec<Expr>,
    flags: Vec<Expr>,
}

/// One choice of values.
pub struct Values<'t> {
    trial: &'t Trial,
    numbers: Vec<i64>,
    flags: u32,
    index: i64,
}

/// The index of a loop: of `range` or `enumerate`.
pub fn index(view: &View<'_>, local: LocalId) -> Option<Index> {
    let [def] = view.defs(local) else { return None };
    let (iter, counted) = match view.bound(*def, local) {
        Expr::Element(iter) => (iter, false),
        Expr::Item(element, at) if *at == Expr::Const(Const::Int(0)) => match *element {
            Expr::Element(iter) => (iter, true),
            _ => return None,
        },
        _ => return None,
    };
    let round = match view.steps[*def].stmt {
        Stmt::For { .. } => *def,
        _ => *view.steps[*def].loops.last()?,
    };
    let Expr::Call { callee, args, .. } = *iter else { return None };
    let name = callee.last_name()?;
    let all: Vec<&Expr> = args.iter().map(|(_, e)| e).collect();
    let zero = || Expr::Const(Const::Int(0));
    let (first, end) = match (name, counted, all.as_slice()) {
        ("range" | "trange", false, [end]) => (zero(), Some((*end).clone())),
        ("range" | "trange", false, [first, end]) => ((*first).clone(), Some((*end).clone())),
        ("enumerate", true, [of]) => (zero(), length(of)),
        ("enumerate", true, [_, first]) => ((*first).clone(), None),
        _ => return None,
    };
    Some(Index { local, round, first, end })
}

/// `len(of)`
fn length(of: &Expr) -> Option<Expr> {
    let callee = Box::new(Expr::Path("len".into()));
    matches!(of, Expr::Local(_) | Expr::Attr(..)).then(|| Expr::Call {
        callee,
        args: vec![(crate::ir::ArgKind::Positional, of.clone())],
        step: 0,
    })
}

impl Trial {
    /// A condition with variables replaced by what they stand for, its symbols noted; `None`: not understood. `rounds`: loops in which
    /// nothing may change.
    pub fn read(&mut self, view: &View<'_>, expr: &Expr, rounds: &[usize]) -> Option<Expr> {
        let whole = self.expand(view, expr, rounds, MOST_DEPTH)?;
        self.note(&whole, true)?;
        Some(whole)
    }

    fn expand(&mut self, view: &View<'_>, expr: &Expr, rounds: &[usize], depth: usize) -> Option<Expr> {
        let depth = depth.checked_sub(1)?;
        let mut inner = |e: &Expr| self.expand(view, e, rounds, depth);
        Some(match expr {
            Expr::Const(_) | Expr::Path(_) => expr.clone(),
            Expr::Local(local) => return self.variable(view, *local, rounds, depth),
            Expr::Attr(base, name) => {
                let set = |s: &crate::infer::practice::view::Step<'_>| {
                    matches!(s.stmt, Stmt::SetAttr { name: other, .. } if other == name)
                        && s.loops.iter().any(|l| rounds.contains(l))
                };
                if view.steps.iter().any(set) {
                    return None;
                }
                Expr::Attr(Box::new(inner(base)?), name.clone())
            }
            Expr::Unary(op, of) => Expr::Unary(*op, Box::new(inner(of)?)),
            Expr::Binary(op, a, b) => Expr::Binary(*op, Box::new(inner(a)?), Box::new(inner(b)?)),
            Expr::Compare(op, a, b) => Expr::Compare(*op, Box::new(inner(a)?), Box::new(inner(b)?)),
            Expr::Bool { and, of } => {
                Expr::Bool { and: *and, of: of.iter().map(inner).collect::<Option<Vec<Expr>>>()? }
            }
            Expr::Choice(c, a, b) => Expr::Choice(Box::new(inner(c)?), Box::new(inner(a)?), Box::new(inner(b)?)),
            Expr::Call { callee, args, .. } => {
                let of = args.iter().map(|(k, e)| Some((k.clone(), inner(e)?))).collect::<Option<Vec<_>>>()?;
                match (callee.last_name(), of.as_slice()) {
                    (Some("bool" | "int"), [(_, one)]) => one.clone(),
                    _ => Expr::Call { callee: Box::new(inner(callee)?), args: of, step: 0 },
                }
            }
            // A setting by its name, unless something is stored under a name in the meantime.
            Expr::Item(base, key) if matches!(**key, Expr::Const(Const::Str(_))) => {
                let stored = |s: &crate::infer::practice::view::Step<'_>| {
                    let Stmt::SetItem { index, .. } = s.stmt else { return false };
                    matches!(&**index, Operand::Const(Const::Str(name)) if **key == Expr::Const(Const::Str(name.clone())))
                        && s.loops.iter().any(|l| rounds.contains(l))
                };
                if view.steps.iter().any(stored) {
                    return None;
                }
                Expr::Item(Box::new(inner(base)?), key.clone())
            }
            Expr::Item(..) | Expr::Element(_) | Expr::Build(_) | Expr::Unknown => return None,
        })
    }

    /// Whether a condition only bounds the index from above: a loop that ends early.
    pub fn ends_early(view: &View<'_>, expr: &Expr) -> bool {
        let counts = |e: &Expr| matches!(e, Expr::Local(local) if index(view, *local).is_some());
        match expr {
            Expr::Unary(UnOp::Not, of) => match &**of {
                Expr::Compare(CmpOp::Ge | CmpOp::Gt, a, b) => counts(a) && !counts(b),
                _ => false,
            },
            Expr::Compare(CmpOp::Lt | CmpOp::Le, a, b) => counts(a) && !counts(b),
            _ => false,
        }
    }

    fn variable(&mut self, view: &View<'_>, local: LocalId, rounds: &[usize], depth: usize) -> Option<Expr> {
        if let Some(index) = index(view, local).filter(|i| rounds.contains(&i.round)) {
            match &self.index {
                Some(known) if *known != index => return None,
                _ => self.index = Some(index),
            }
            return Some(Expr::Local(local));
        }
        let inside = |d: &usize| view.steps[*d].loops.iter().any(|l| rounds.contains(l)) || rounds.contains(d);
        match view.defs(local) {
            [one] if !view.is_param(local) => {
                let value = view.bound(*one, local);
                let plain = matches!(
                    value,
                    Expr::Unary(..)
                        | Expr::Binary(..)
                        | Expr::Compare(..)
                        | Expr::Bool { .. }
                        | Expr::Const(_)
                        | Expr::Attr(..)
                        | Expr::Local(_)
                        | Expr::Choice(..)
                );
                match plain.then(|| self.expand(view, &value, rounds, depth)).flatten() {
                    Some(value) => Some(value),
                    None if inside(one) => None,
                    None => Some(Expr::Local(local)),
                }
            }
            defs if defs.iter().any(inside) => None,
            _ => Some(Expr::Local(local)),
        }
    }

    /// The symbols of a condition (`truth`) or a number.
    fn note(&mut self, expr: &Expr, truth: bool) -> Option<()> {
        match expr {
            Expr::Const(_) => {}
            Expr::Bool { of, .. } => of.iter().try_for_each(|e| self.note(e, truth))?,
            Expr::Unary(UnOp::Not, of) => self.note(of, true)?,
            Expr::Choice(c, a, b) => {
                self.note(c, true)?;
                self.note(a, truth)?;
                self.note(b, truth)?;
            }
            Expr::Compare(_, a, b) if is_number(a) && is_number(b) => {
                self.note(a, false)?;
                self.note(b, false)?;
            }
            Expr::Binary(_, a, b) => {
                self.note(a, false)?;
                self.note(b, false)?;
            }
            Expr::Unary(UnOp::Neg | UnOp::Pos, of) => self.note(of, false)?,
            Expr::Local(local) if self.index.as_ref().is_some_and(|i| i.local == *local) => {}
            symbol => {
                // What depends on the index in another way is not followed.
                if self.index.as_ref().is_some_and(|i| symbol.mentions(i.local)) {
                    return None;
                }
                let known = if truth { &mut self.flags } else { &mut self.numbers };
                if !known.contains(symbol) {
                    known.push(symbol.clone());
                }
            }
        }
        Some(())
    }

    /// A number that is not the index is noted.
    pub fn read_number(&mut self, view: &View<'_>, expr: &Expr, rounds: &[usize]) -> Option<Expr> {
        let whole = self.expand(view, expr, rounds, MOST_DEPTH)?;
        self.note(&whole, false)?;
        Some(whole)
    }

    /// Whether there is a choice of flags for which something holds for all numbers; `holds` is asked with each choice.
    pub fn some_flags(&self, holds: &dyn Fn(&mut Values<'_>) -> bool) -> bool {
        if self.numbers.len() > MOST_NUMBERS || self.flags.len() > MOST_FLAGS {
            return false;
        }
        (0..1u32 << self.flags.len()).any(|flags| {
            let mut values =
                Values { trial: self, numbers: vec![*NUMBERS.start(); self.numbers.len()], flags, index: 0 };
            loop {
                if !holds(&mut values) {
                    return false;
                }
                let Some(next) = values.numbers.iter().position(|n| n < NUMBERS.end()) else { return true };
                values.numbers[..next].fill(*NUMBERS.start());
                values.numbers[next] += 1;
            }
        })
    }
}

/// Whether an expression may be a number.
fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Const(c) => matches!(c, Const::Int(_)),
        Expr::Bool { .. } | Expr::Compare(..) | Expr::Build(_) | Expr::Unknown | Expr::Unary(UnOp::Not, _) => false,
        _ => true,
    }
}

impl Values<'_> {
    /// Whether something holds for an index.
    pub fn at(&mut self, index: i64) -> &Self {
        self.index = index;
        self
    }

    /// The indices that are tried.
    pub fn indices() -> std::ops::Range<i64> {
        INDICES
    }

    pub fn truth(&self, expr: &Expr) -> Option<bool> {
        match expr {
            Expr::Const(Const::Bool(b)) => Some(*b),
            Expr::Const(Const::None) => Some(false),
            Expr::Const(Const::Int(n)) => Some(*n != 0),
            Expr::Bool { and, of } => {
                let all: Option<Vec<bool>> = of.iter().map(|e| self.truth(e)).collect();
                all.map(|all| if *and { all.iter().all(|b| *b) } else { all.iter().any(|b| *b) })
            }
            Expr::Unary(UnOp::Not, of) => self.truth(of).map(|b| !b),
            Expr::Choice(c, a, b) => {
                if self.truth(c)? {
                    self.truth(a)
                } else {
                    self.truth(b)
                }
            }
            Expr::Compare(op, a, b) if is_number(a) && is_number(b) => {
                int_compare(*op, self.number(a)?, self.number(b)?)
            }
            Expr::Binary(..) => self.number(expr).map(|n| n != 0),
            Expr::Local(local) if self.is_index(*local) => Some(self.index != 0),
            symbol => {
                let at = self.trial.flags.iter().position(|f| f == symbol)?;
                Some(self.flags & (1 << at) != 0)
            }
        }
    }

    pub fn number(&self, expr: &Expr) -> Option<i64> {
        match expr {
            Expr::Const(Const::Int(n)) => Some(*n),
            Expr::Local(local) if self.is_index(*local) => Some(self.index),
            Expr::Unary(UnOp::Neg, of) => self.number(of)?.checked_neg(),
            Expr::Unary(UnOp::Pos, of) => self.number(of),
            Expr::Choice(c, a, b) => {
                if self.truth(c)? {
                    self.number(a)
                } else {
                    self.number(b)
                }
            }
            Expr::Bool { .. } => None,
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                match op {
                    BinOp::Add => a.checked_add(b),
                    BinOp::Sub => a.checked_sub(b),
                    BinOp::Mul => a.checked_mul(b),
                    BinOp::FloorDiv if b > 0 => Some(a.div_euclid(b)),
                    BinOp::Mod if b > 0 => Some(a.rem_euclid(b)),
                    _ => None,
                }
            }
            symbol => self.trial.numbers.iter().position(|n| n == symbol).and_then(|at| self.numbers.get(at)).copied(),
        }
    }

    fn is_index(&self, local: LocalId) -> bool {
        self.trial.index.as_ref().is_some_and(|i| i.local == local)
    }
}
