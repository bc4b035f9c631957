//! Backwards that return what does not depend on the gradient that they are given, nor on what the forward saved: the backward of a
//! checkpoint, which runs another backward and returns what that one left. In: the text of the bodies. Out: whether it is so. Never: a
//! guess: any use that is not plain counts as one that follows. Source: DESIGN.md section 6. Next: `derive.rs`.

use crate::ir::{Block, Func, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::source::{Idx, Name};

/// What `save_for_backward` fills.
const SAVED: &str = "saved_tensors";

/// Whether nothing that the backward returns is made of what it is given or of what the forward stored in the context. Then the
/// gradients are the same however many dims the tensors have. `stores`: the method that is given the context beside the backward.
pub fn is_blind(stores: &Func, backward: &Func) -> bool {
    let (Some(context), Some(own)) = (stores.params.first(), backward.params.first()) else { return false };
    let plain = |f: &Func| f.locals().iter().all(|l| matches!(l.kind, LocalKind::Plain | LocalKind::Temp));
    let Some(stored) = stored(stores, context.local).filter(|_| plain(backward)) else { return false };
    let mut follow = Follow { context: own.local, stored, made: vec![false; backward.locals().len()], grew: true };
    for param in backward.params.iter().skip(1) {
        follow.made[param.local.index()] = true;
    }
    while std::mem::take(&mut follow.grew) {
        if !follow.block(backward.body()) {
            return false;
        }
    }
    true
}

/// The attributes of the context that a method sets; nothing if other code may set more of them while it runs.
fn stored(func: &Func, context: LocalId) -> Option<Vec<Name>> {
    let is_context = |o: &Operand| matches!(o, Operand::Local(l) if *l == context);
    let mut names = vec![Name::from(SAVED)];
    let (mut kept, mut fine) = (false, true);
    let mut visit = |stmt: &Stmt| match stmt {
        Stmt::SetAttr { base, name, value } if is_context(base) => {
            fine &= !is_context(value);
            names.push(name.clone());
        }
        // Who keeps the context may change it from now on.
        Stmt::SetAttr { value, .. } if is_context(value) => kept = true,
        Stmt::Assign { dst, value: Rvalue::CallMethod { base, args, .. } } => {
            fine &= *dst != context && !kept && !args.iter().any(|a| is_context(&a.value));
            fine &= !is_context(base) || !args.is_empty();
        }
        Stmt::Assign { value: Rvalue::Call { .. }, .. } if kept => fine = false,
        Stmt::Assign { value: Rvalue::Attr { base, .. }, .. } if is_context(base) => {}
        Stmt::Def { .. } | Stmt::Class { .. } | Stmt::For { .. } | Stmt::While { .. } if kept => fine = false,
        other => fine &= !other.operands().into_iter().any(is_context),
    };
    each(func.body(), &mut visit);
    fine.then_some(names)
}

fn each(block: &Block, visit: &mut dyn FnMut(&Stmt)) {
    for node in block {
        visit(&node.stmt);
        for inner in node.stmt.blocks() {
            each(inner, visit);
        }
    }
}

/// The variables of a backward that may be made of what it is given.
struct Follow {
    context: LocalId,
    stored: Vec<Name>,
    made: Vec<bool>,
    grew: bool,
}

impl Follow {
    fn is_made(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Local(l) if self.made[l.index()])
    }
    fn mark(&mut self, local: LocalId) {
        let slot = &mut self.made[local.index()];
        self.grew |= !*slot;
        *slot = true;
    }
    fn mark_operand(&mut self, operand: &Operand) {
        if let Operand::Local(local) = operand {
            self.mark(*local);
        }
    }

    fn load(&mut self, dst: LocalId, name: &Name) {
        if self.stored.contains(name) {
            self.mark(dst);
        }
    }
    fn store(&mut self, name: &Name, value: &Operand) {
        if self.is_made(value) && !self.stored.contains(name) {
            self.stored.push(name.clone());
            self.grew = true;
        }
    }

    /// Whether nothing that is returned in a block is made of what is followed.
    fn block(&mut self, block: &Block) -> bool {
        block.iter().all(|node| self.statement(&node.stmt) && node.stmt.blocks().all(|b| self.block(b)))
    }

    fn statement(&mut self, stmt: &Stmt) -> bool {
        let is_context = |o: &Operand| matches!(o, Operand::Local(l) if *l == self.context);
        let read = stmt.operands();
        let any = read.iter().any(|o| self.is_made(o));
        match stmt {
            Stmt::Return { .. } | Stmt::If { .. } | Stmt::While { .. } | Stmt::Assert { .. } => {
                return !any && !read.into_iter().any(is_context);
            }
            Stmt::Assign { dst, value: Rvalue::Attr { base, name } } if is_context(base) => self.load(*dst, name),
            Stmt::SetAttr { base, name, value } if is_context(base) => self.store(name, value),
            _ if read.iter().copied().any(is_context) => return false,
            Stmt::Assign { dst, value } if any => {
                self.mark(*dst);
                // A call may write into anything that it is given.
                if matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. } | Rvalue::InPlace { .. }) {
                    read.into_iter().for_each(|o| self.mark_operand(o));
                }
            }
            Stmt::Assign { value, .. } => {
                return !matches!(value, Rvalue::Closure { .. } | Rvalue::Yield(_) | Rvalue::Await(_));
            }
            Stmt::SetAttr { base, .. } | Stmt::SetItem { base, .. } if any => self.mark_operand(base),
            Stmt::Unpack { before, star, after, .. } if any => {
                before.iter().chain(star).chain(after).for_each(|l| self.mark(*l));
            }
            Stmt::For { dst, .. } if any => self.mark(*dst),
            Stmt::With { bind, .. } if any => bind.iter().for_each(|l| self.mark(*l)),
            Stmt::Append { collection, .. } if any => self.mark(*collection),
            Stmt::SetGlobal { .. } | Stmt::Def { .. } | Stmt::Class { .. } => return false,
            _ => {}
        }
        true
    }
}
