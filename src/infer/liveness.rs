//! Which variables of a function are read again after a statement: what the others hold tells no paths apart. In: a function. Out:
//! [`Liveness`]. Never: variables that a nested function or a comment of the source may read, or parameters, which are always live.
//! Source: live-variable analysis, over a tree instead of a graph. Next: `join.rs`.

use super::machine::Machine;
use crate::ir::{Block, Func, FuncKind, LocalId, LocalKind, Operand, Stmt, StmtId};
use crate::source::Idx;
use std::sync::Arc;

/// Where each variable is read for the last time.
#[derive(Debug, Default)]
pub struct Liveness {
    /// By statement: the number of the last statement inside it, in the order of the source.
    ends: Vec<u32>,
    /// By variable: the number of the statement after which nothing reads it.
    last: Vec<u32>,
}

/// A variable that is read by something else than the statements of its function.
const ALWAYS: u32 = u32::MAX;

impl Liveness {
    fn new(func: &Func) -> Liveness {
        let kinds = func.locals();
        let mut last = vec![0; kinds.len()];
        for (i, last) in last.iter_mut().enumerate() {
            let is_own = matches!(kinds[LocalId::from_index(i)].kind, LocalKind::Plain | LocalKind::Temp);
            *last = if is_own { 0 } else { ALWAYS };
        }
        for param in &func.params {
            last[param.local.index()] = ALWAYS;
        }
        let mut walk = Walk {
            func,
            out: Liveness { ends: Vec::new(), last },
            count: 0,
            loops: Vec::new(),
            reads: Vec::new(),
            sets: vec![0; kinds.len()],
        };
        walk.block(func.body());
        walk.out
    }

    /// Whether a variable is read after a statement and all that is inside it.
    pub fn is_live(&self, local: LocalId, after: StmtId) -> bool {
        let end = self.ends.get(after.index()).copied().unwrap_or(0);
        self.last.get(local.index()).is_none_or(|last| *last > end)
    }
}

struct Walk<'a> {
    func: &'a Func,
    out: Liveness,
    /// Statements met.
    count: u32,
    /// The first statements of the loops around.
    loops: Vec<u32>,
    /// What is read in loops: the variable, and the first statement of the outermost loop that is run again before it is set again.
    reads: Vec<(LocalId, u32)>,
    /// By variable: the first statement that sets it.
    sets: Vec<u32>,
}

impl Walk<'_> {
    fn block(&mut self, block: &Block) {
        for node in block {
            self.count += 1;
            let start = self.count;
            for operand in node.stmt.operands() {
                self.read(operand);
            }
            if let Stmt::Append { collection, .. } = &node.stmt {
                self.read(&Operand::Local(*collection));
            }
            if let Stmt::Assign { dst, .. } = &node.stmt {
                let first = &mut self.sets[dst.index()];
                *first = if *first == 0 { start } else { *first };
            }
            let again = matches!(node.stmt, Stmt::For { .. } | Stmt::While { .. });
            if again {
                self.loops.push(start);
            }
            node.stmt.blocks().for_each(|inner| self.block(inner));
            if let Stmt::While { test, .. } = &node.stmt {
                self.read(test);
            }
            if again {
                self.loops.pop();
                self.read_again(start);
            }
            let at = node.id.index();
            if self.out.ends.len() <= at {
                self.out.ends.resize(at + 1, 0);
            }
            self.out.ends[at] = self.count;
        }
    }

    fn read(&mut self, operand: &Operand) {
        let Operand::Local(local) = operand else { return };
        let last = &mut self.out.last[local.index()];
        *last = (*last).max(self.count);
        // A temporary is set anew in each round of the loops that it is set in.
        let set = self.sets[local.index()];
        let is_temp = self.func.locals()[*local].kind == LocalKind::Temp;
        let outer = self.loops.iter().find(|start| !is_temp || set < **start);
        self.reads.extend(outer.map(|start| (*local, *start)));
    }

    /// At the end of a loop: what it reads may be read in another round.
    fn read_again(&mut self, start: u32) {
        let (count, last) = (self.count, &mut self.out.last);
        self.reads.retain(|(local, outermost)| {
            if *outermost == start {
                last[local.index()] = last[local.index()].max(count);
            }
            *outermost != start
        });
    }
}

impl Machine<'_> {
    /// What is live in the function under execution; `None`: all of it, for bodies of modules and classes, whose variables others read, and
    /// functions whose comments claim something of them.
    pub(super) fn liveness(&mut self) -> Option<Arc<Liveness>> {
        let func = self.func();
        let has_own = matches!(func.kind, FuncKind::Function | FuncKind::Lambda);
        if !has_own || !func.claims.is_empty() {
            return None;
        }
        let at = self.stack.last()?.func;
        let made = self.live.entry(at).or_insert_with(|| Arc::new(Liveness::new(func)));
        Some(made.clone())
    }
}
