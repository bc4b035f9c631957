//! What follows from a value that ranks do not have alike, and what it decides. In: a function, and what its source is. Out: variables
//! that are computed from it and tests that ask for it, and the test that decides whether a step is reached. Never: a value that has
//! been through a call that is not known to compute, which may have made it equal. Next: `new_groups.rs`, `clock.rs`.

use super::expr::Expr;
use super::view::{Guard, View};
use crate::ir::{Block, BuildKind, CmpOp, Const, Item, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::source::Place;
use rustc_hash::FxHashSet;

/// Functions of one value that differ where it does.
const COMPUTE: &[&str] = &["int", "float", "round", "abs", "str", "min", "max", "divmod", "math.floor", "math.ceil"];

/// Methods that do.
const METHODS: &[&str] = &[".total_seconds", ".timestamp", ".strip", ".split"];

/// How often the steps of a function are gone through.
const MOST_ROUNDS: usize = 4;

/// What follows from a source.
pub struct Flow {
    values: FxHashSet<LocalId>,
    tests: FxHashSet<LocalId>,
}

/// A test that decides whether a step is reached.
pub struct Decided<'a> {
    /// It holds where the step is reached, or does not.
    pub guard: Guard<'a>,
    pub test: Place,
    /// Because others leave the function or the loop.
    pub exit: bool,
}

impl Flow {
    /// `source`: whether an operation is one; `compares`: which comparisons are tests.
    pub fn new<'a>(
        view: &View<'a>,
        source: &dyn Fn(&View<'a>, &'a Rvalue) -> bool,
        compares: fn(CmpOp) -> bool,
    ) -> Flow {
        let mut flow = Flow { values: FxHashSet::default(), tests: FxHashSet::default() };
        for _ in 0..MOST_ROUNDS {
            let before = flow.values.len() + flow.tests.len();
            for i in 0..view.steps.len() {
                flow.step(view, i, source, compares);
            }
            if flow.values.len() + flow.tests.len() == before {
                break;
            }
        }
        flow
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn has(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Local(local) if self.values.contains(local))
    }

    pub fn is_test(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Local(local) if self.tests.contains(local))
    }

    fn step<'a>(
        &mut self,
        view: &View<'a>,
        at: usize,
        source: &dyn Fn(&View<'a>, &'a Rvalue) -> bool,
        compares: fn(CmpOp) -> bool,
    ) {
        for local in view.binds(at) {
            if view.is_param(local) {
                continue;
            }
            let gives = |def: &usize| self.gives(view, *def, local, source);
            let values = view.defs(local).iter().all(gives);
            let test = |def: &usize| self.tests(view, *def, compares);
            let tests = match view.is_temp(local) {
                // `a and b` binds its value twice.
                true => view.defs(local).iter().any(test),
                false => view.defs(local).iter().all(test),
            };
            if values {
                self.values.insert(local);
            }
            if tests {
                self.tests.insert(local);
            }
        }
    }

    /// Whether a step gives a variable what follows from the source.
    fn gives<'a>(
        &self,
        view: &View<'a>,
        def: usize,
        local: LocalId,
        source: &dyn Fn(&View<'a>, &'a Rvalue) -> bool,
    ) -> bool {
        match view.steps[def].stmt {
            Stmt::Assign { value, .. } => source(view, value) || self.computes(view, value),
            Stmt::Unpack { value, before, star: None, .. } => match view.source(value) {
                Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) => {
                    let at = before.iter().position(|l| *l == local);
                    matches!(at.and_then(|at| items.get(at)), Some(Item::One(item)) if self.has(item))
                }
                _ => self.has(value),
            },
            _ => false,
        }
    }

    fn computes<'a>(&self, view: &View<'a>, value: &'a Rvalue) -> bool {
        match value {
            Rvalue::Use(o) | Rvalue::Attr { base: o, .. } | Rvalue::Unary { operand: o, .. } => self.has(o),
            Rvalue::Binary { left, right, .. } | Rvalue::InPlace { left, right, .. } => {
                self.has(left) || self.has(right)
            }
            Rvalue::Call { args, .. } => {
                let known =
                    || view.callee(value).is_some_and(|path| COMPUTE.contains(&path.trim_start_matches("builtins.")));
                args.iter().any(|a| self.has(&a.value)) && known()
            }
            Rvalue::CallMethod { base, .. } => {
                self.has(base) && view.callee(value).is_some_and(|path| METHODS.contains(&path.as_str()))
            }
            _ => false,
        }
    }

    fn tests(&self, view: &View<'_>, def: usize, compares: fn(CmpOp) -> bool) -> bool {
        match view.value(def) {
            Some(Rvalue::Compare { op, left, right }) => {
                let known = |o: &Operand| !is_sentinel(&view.expr(o), *op);
                compares(*op)
                    && (self.has(left) && known(right)
                        || self.has(right) && known(left) && !matches!(op, CmpOp::In | CmpOp::NotIn))
            }
            Some(Rvalue::Use(o) | Rvalue::Unary { operand: o, .. }) => self.is_test(o),
            Some(Rvalue::Bool { operands, .. }) => operands.iter().any(|o| self.is_test(o)),
            _ => false,
        }
    }

    /// The test that decides whether a step is reached, or how often.
    pub fn decides<'a>(&self, view: &View<'a>, step: usize) -> Option<Decided<'a>> {
        let decided = |guard: Guard<'a>, exit| Decided { guard, test: view.part(guard.at, 0), exit };
        let around = view.steps[step].guards.iter().find(|g| self.is_test(g.test) && !is_failure(view, g));
        if let Some(guard) = around {
            return Some(decided(*guard, is_left(view, guard)));
        }
        let rounds = view.steps[step].loops.iter().find_map(|at| match view.steps[*at].stmt {
            Stmt::While { test, .. } if self.is_test(test) => Some(Guard { test, holds: true, at: view.steps[*at].id }),
            _ => None,
        });
        if let Some(guard) = rounds {
            return Some(decided(guard, false));
        }
        (0..view.steps.len()).filter(|exit| leaves(view, *exit, step)).find_map(|exit| {
            let guards = &view.steps[exit].guards;
            let at = guards.iter().position(|g| self.is_test(g.test) && !is_failure(view, g))?;
            let guard = guards[at];
            // Inside of a branch that is left on every way the step is not reached anyway.
            if guards[..at].iter().any(|outer| is_left_whole(view, outer)) {
                return None;
            }
            let guard = Guard { holds: !guard.holds, ..guard };
            Some(decided(guard, true))
        })
    }
}

/// Whether a comparison with a constant asks for something else than one rank or another: whether a number was set at all, or whether it
/// may be divided by.
fn is_sentinel(expr: &Expr, op: CmpOp) -> bool {
    let orders = matches!(op, CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge);
    match expr {
        Expr::Const(Const::None) => true,
        Expr::Const(Const::Str(text)) => text.is_empty() || text == "-1",
        Expr::Const(Const::Int(n)) => *n < 0 || orders && *n == 0,
        Expr::Const(Const::Float(bits)) => orders && f64::from_bits(*bits) < 1e-3,
        Expr::Unary(UnOp::Neg, inner) => matches!(**inner, Expr::Const(_)),
        Expr::Build(items) => items.iter().all(|item| is_sentinel(item, op)),
        _ => false,
    }
}

/// Whether a step, at the end of a branch, keeps another one from being reached.
fn leaves(view: &View<'_>, exit: usize, step: usize) -> bool {
    let (from, to) = (&view.steps[exit], &view.steps[step]);
    let apart = from.guards.iter().any(|g| to.guards.iter().any(|h| h.at == g.at && h.holds != g.holds));
    let inside = from.loops.last().is_some_and(|inner| to.loops.contains(inner));
    let way = match from.stmt {
        Stmt::Return { .. } => exit < step || from.loops.iter().any(|l| to.loops.contains(l)),
        Stmt::Break => inside,
        Stmt::Continue => inside && exit < step,
        _ => false,
    };
    way && !apart
}

/// Whether the program fails where a test is answered otherwise.
pub fn is_failure(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let tested = view.test_of(guard).map(|at| view.steps[at].stmt);
    match tested {
        Some(Stmt::If { then, orelse, .. }) => {
            let other = if guard.holds { orelse } else { then };
            other.last().is_some_and(|n| matches!(n.stmt, Stmt::Raise))
        }
        _ => true,
    }
}

/// Whether every way through the branch of a guard leaves the function or the loop.
fn is_left_whole(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let tested = view.test_of(guard).map(|at| view.steps[at].stmt);
    let Some(Stmt::If { then, orelse, .. }) = tested else { return false };
    leaves_whole(if guard.holds { then } else { orelse })
}

fn leaves_whole(block: &Block) -> bool {
    block.last().is_some_and(|node| match &node.stmt {
        Stmt::Return { .. } | Stmt::Raise | Stmt::Break | Stmt::Continue => true,
        Stmt::If { then, orelse, .. } => leaves_whole(then) && leaves_whole(orelse),
        _ => false,
    })
}

/// Whether a guard is what an exit has left.
fn is_left(view: &View<'_>, guard: &Guard<'_>) -> bool {
    view.steps.iter().any(|s| {
        matches!(s.stmt, Stmt::Return { .. } | Stmt::Break | Stmt::Continue)
            && s.guards.last().is_some_and(|g| g.at == guard.at && g.holds != guard.holds)
    })
}
