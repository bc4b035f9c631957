//! Statements. In: a block. Out: whether control goes on after it, and the state then. Never: a guess: branches are joined, what a
//! loop binds is unknown. Next: `eval.rs`.

use super::super::shared::Shared;
use super::run::{Run, body};
use super::state::{Frame, State};
use super::value::Val;
use crate::ir::{Block, LocalId, LocalKind, Node, Operand, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;

/// Elements of a literal sequence that a loop visits one by one.
const MAX_UNROLLED: usize = 16;

/// Whether control goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    Stop,
}

impl<'a> Run<'a> {
    pub fn block(&mut self, block: &'a Block) -> Flow {
        for node in block {
            if !self.step() || self.node(node) == Flow::Stop {
                return Flow::Stop;
            }
        }
        Flow::Next
    }

    fn node(&mut self, node: &'a Node) -> Flow {
        match &node.stmt {
            Stmt::Assign { dst, value } => {
                let value = self.rvalue(node.id, value);
                self.kept(*dst, &value);
                self.st.set(*dst, value);
            }
            Stmt::SetGlobal { name, value } => {
                let value = self.operand(value);
                self.set_global(name, value);
            }
            Stmt::SetAttr { base, name, value } => self.set_attr(base, name, value),
            Stmt::SetItem { base, value, .. } => {
                let (base, value) = (self.operand(base), self.operand(value));
                self.leak(&value);
                if matches!(base, Val::List(_)) {
                    self.st.forget_list(&base);
                }
            }
            Stmt::Unpack { value, before, star, after } => self.unpack(value, before, *star, after),
            Stmt::If { test, then, orelse } => return self.branch(test, then, orelse),
            Stmt::For { dst, iter, body, orelse } => {
                let items = self.operand(iter).items().filter(|i| i.len() <= MAX_UNROLLED);
                return self.each(*dst, items, body, orelse);
            }
            Stmt::While { head, body, orelse, .. } => return self.rounds(&[head, body], None, orelse),
            Stmt::With { context, bind, body } => return self.with(node.id, context, *bind, body),
            Stmt::Try { body, handlers, orelse, finally } => return self.attempt(body, handlers, orelse, finally),
            Stmt::Return { value } => {
                let value = self.operand(value);
                let state = self.st.clone();
                match self.returns.last_mut() {
                    Some(returns) => returns.push((value, state)),
                    None => self.leak(&value),
                }
                return Flow::Stop;
            }
            Stmt::Raise => return Flow::Stop,
            Stmt::Break | Stmt::Continue => {
                let state = self.st.clone();
                if let Some(exits) = self.exits.last_mut() {
                    exits.push(state);
                }
                return Flow::Stop;
            }
            Stmt::Def { dst, func, defaults, decorators } => self.define(*dst, *func, defaults, decorators),
            Stmt::Class { dst, class, .. } => self.class(*dst, *class),
            Stmt::Import { dst, path, member, level, .. } => {
                let value = self.imported(path, member.as_ref(), *level);
                self.st.set(*dst, value);
            }
            Stmt::Append { collection, key, value } => {
                for held in key.iter().chain([value]) {
                    let held = self.operand(held);
                    self.leak(&held);
                }
                self.st.set(*collection, Val::Unknown);
            }
            Stmt::Delete { local } => self.st.set(*local, Val::Unknown),
            Stmt::Assert { .. } | Stmt::ImportStar { .. } => {}
        }
        Flow::Next
    }

    fn unpack(&mut self, value: &Operand, before: &[LocalId], star: Option<LocalId>, after: &[LocalId]) {
        let value = self.operand(value);
        // As many targets as the tensor has dims.
        if let (Val::Sizes(tensor), None, true) = (&value, star, after.is_empty())
            && let Some(known) = self.st.tensors.get_mut(tensor)
            && known.shape.is_none()
        {
            known.shape = Some(vec![None; before.len()]);
        }
        let items = value.items();
        let known = items.filter(|i| star.is_none() && after.is_empty() && i.len() == before.len());
        for (i, local) in before.iter().enumerate() {
            let item = known.as_ref().and_then(|k| k.get(i)).cloned().unwrap_or(Val::Unknown);
            self.st.set(*local, item);
        }
        for local in star.iter().chain(after) {
            self.st.set(*local, Val::Unknown);
        }
    }

    /// A function inside may use a mesh that a variable holds.
    fn kept(&mut self, local: LocalId, value: &Val) {
        let cell = |at| self.project.func(at).locals().get(local).is_some_and(|l| l.kind == LocalKind::Cell);
        if matches!(value, Val::Mesh(_)) && self.at().is_some_and(cell) {
            self.escape(value, 0);
        }
    }

    fn imported(&mut self, path: &str, member: Option<&Name>, level: u32) -> Val {
        let Some(at) = self.at() else { return Val::Unknown };
        let base = self.project.absolute(at.module, path, level);
        let full = member.map_or(base.clone(), |m| format!("{base}.{m}"));
        self.resolved(&self.project.path(&full))
    }

    fn define(&mut self, dst: LocalId, func: crate::ir::FuncId, defaults: &[(u32, Operand)], decorators: &[Operand]) {
        let Some(at) = self.at() else { return };
        let func = FuncRef { module: at.module, func };
        let given = defaults.iter().map(|(i, o)| (*i, self.operand(o))).collect();
        self.defaults.insert(func, given);
        self.st.set(dst, if decorators.is_empty() { Val::Func(func) } else { Val::Unknown });
    }

    /// The body of a class says the defaults of its methods.
    fn class(&mut self, dst: LocalId, class: crate::ir::ClassId) {
        let Some(at) = self.at() else { return };
        let class = ClassRef { module: at.module, class };
        self.st.set(dst, Val::Class(class));
        let inner = FuncRef { module: at.module, func: self.project.class(class).body };
        self.st.frames.push(Frame { at: inner, locals: Shared::default() });
        let project = self.project;
        self.block(project.func(inner).body());
        self.st.frames.pop();
    }

    fn set_global(&mut self, name: &Name, value: Val) {
        let Some(at) = self.at() else { return };
        let top = body(at.module);
        let found = self.project.func(top).locals().iter_enumerated();
        let local = found.filter(|(_, l)| l.kind != LocalKind::Temp).find(|(_, l)| l.name == *name).map(|(id, _)| id);
        match (local, self.st.frames.iter_mut().find(|f| f.at == top)) {
            (Some(local), Some(frame)) => {
                frame.locals.insert(local, value);
            }
            _ => self.leak(&value),
        }
    }

    fn set_attr(&mut self, base: &Operand, name: &Name, value: &Operand) {
        let (base, value) = (self.operand(base), self.operand(value));
        match base {
            Val::Object(id) => {
                // Other methods may use it, and those are not followed from here.
                self.escape(&value, 0);
                self.st.objects.entry(id).or_default().insert(name.clone(), value);
            }
            Val::Tensor(id) => {
                self.leak(&base);
                if let Some(tensor) = self.st.tensors.get_mut(&id) {
                    tensor.shape = None;
                }
            }
            Val::Layer(id) => {
                let held = match value {
                    Val::Tensor(t) => Some(t),
                    _ => None,
                };
                let other = held.unwrap_or_else(|| self.id());
                if let Some(layer) = self.st.layers.get_mut(&id) {
                    layer.params.insert(name.clone(), other);
                }
            }
            _ => self.leak(&value),
        }
    }

    fn branch(&mut self, test: &Operand, then: &'a Block, orelse: &'a Block) -> Flow {
        let test = self.operand(test);
        match super::eval::truth(&test) {
            Some(true) => return self.block(then),
            Some(false) => return self.block(orelse),
            None => {}
        }
        let before = self.st.clone();
        let first = self.block(then);
        let after = std::mem::replace(&mut self.st, before);
        let second = self.block(orelse);
        match (first, second) {
            (Flow::Stop, flow) => flow,
            (Flow::Next, Flow::Stop) => {
                self.st = after;
                Flow::Next
            }
            (Flow::Next, Flow::Next) => {
                self.merge(after);
                Flow::Next
            }
        }
    }

    fn merge(&mut self, other: State) {
        let mine = std::mem::replace(&mut self.st, State::new());
        self.st = mine.join(other);
    }

    /// A loop over items that are known, one by one; else one round for all.
    fn each(&mut self, dst: LocalId, items: Option<Vec<Val>>, body: &'a Block, orelse: &'a Block) -> Flow {
        for item in items.as_deref().unwrap_or_default() {
            self.st.set(dst, item.clone());
            self.exits.push(Vec::new());
            let flow = self.block(body);
            let left = self.exits.pop().unwrap_or_default();
            if flow == Flow::Stop || !left.is_empty() {
                // It may end here, or go on: the rest is taken together.
                let mut states = left.into_iter();
                if flow == Flow::Stop {
                    match states.next() {
                        Some(state) => self.st = state,
                        None => return Flow::Stop,
                    }
                }
                states.for_each(|s| self.merge(s));
                return self.rounds(&[body], Some(dst), orelse);
            }
        }
        match items {
            Some(_) => self.block(orelse),
            None => self.rounds(&[body], Some(dst), orelse),
        }
    }

    /// One round in which nothing is known of what the loop binds.
    fn rounds(&mut self, blocks: &[&'a Block], dst: Option<LocalId>, orelse: &'a Block) -> Flow {
        let mut bound: Vec<LocalId> = dst.into_iter().collect();
        for block in blocks {
            binds(block, &mut bound);
        }
        let forget = |run: &mut Run<'a>| bound.iter().for_each(|l| run.st.set(*l, Val::Unknown));
        forget(self);
        let before = self.st.clone();
        self.exits.push(Vec::new());
        let mut flow = Flow::Next;
        for block in blocks {
            if flow == Flow::Next {
                flow = self.block(block);
            }
        }
        if flow == Flow::Next {
            self.merge(before);
        } else {
            self.st = before;
        }
        for state in self.exits.pop().unwrap_or_default() {
            self.merge(state);
        }
        forget(self);
        self.block(orelse)
    }

    fn with(&mut self, id: StmtId, context: &Operand, bind: Option<LocalId>, body: &'a Block) -> Flow {
        let value = self.operand(context);
        if let Some(local) = bind {
            self.st.set(local, if matches!(value, Val::Mesh(_)) { value } else { Val::Unknown });
        }
        let expects = self.expects(id);
        let before = expects.then(|| self.st.clone());
        self.quiet += u32::from(expects);
        let flow = self.block(body);
        self.quiet -= u32::from(expects);
        match before {
            Some(before) if flow == Flow::Stop => {
                self.st = before;
                Flow::Next
            }
            Some(before) => {
                self.merge(before);
                Flow::Next
            }
            None => flow,
        }
    }

    /// Whether a context manager is one that takes exceptions: `pytest.raises(...)`, `self.assertRaises(...)`, `suppress(...)`.
    fn expects(&self, id: StmtId) -> bool {
        let Some(at) = self.at() else { return false };
        let Some(span) = self.project.func(at).spans().parts(id).next() else {
            return true;
        };
        let text = self.files[self.project.file(at.module)].slice(span);
        text.contains("aises") || text.contains("suppress")
    }

    fn attempt(&mut self, body: &'a Block, handlers: &'a [Block], orelse: &'a Block, finally: &'a Block) -> Flow {
        let before = self.st.clone();
        let caught = u32::from(!handlers.is_empty());
        self.quiet += caught;
        let mut flow = self.block(body);
        self.quiet -= caught;
        let thrown = before.join(self.st.clone());
        if flow == Flow::Next {
            flow = self.block(orelse);
        }
        for handler in handlers {
            let after = std::mem::replace(&mut self.st, thrown.clone());
            match (flow, self.block(handler)) {
                (Flow::Next, Flow::Next) => self.merge(after),
                (Flow::Next, Flow::Stop) => self.st = after,
                (Flow::Stop, other) => flow = other,
            }
        }
        match self.block(finally) {
            Flow::Next => flow,
            Flow::Stop => Flow::Stop,
        }
    }
}

/// The variables that a block binds.
fn binds(block: &Block, out: &mut Vec<LocalId>) {
    for node in block {
        match &node.stmt {
            Stmt::Assign { dst, .. }
            | Stmt::Def { dst, .. }
            | Stmt::Class { dst, .. }
            | Stmt::Import { dst, .. }
            | Stmt::Delete { local: dst }
            | Stmt::Append { collection: dst, .. } => out.push(*dst),
            Stmt::Unpack { before, star, after, .. } => out.extend(before.iter().chain(star).chain(after)),
            Stmt::If { then, orelse, .. } => [then, orelse].into_iter().for_each(|b| binds(b, out)),
            Stmt::For { dst, body, orelse, .. } => {
                out.push(*dst);
                [body, orelse].into_iter().for_each(|b| binds(b, out));
            }
            Stmt::While { head, body, orelse, .. } => [head, body, orelse].into_iter().for_each(|b| binds(b, out)),
            Stmt::With { bind, body, .. } => {
                out.extend(bind);
                binds(body, out);
            }
            Stmt::Try { body, handlers, orelse, finally } => {
                [body].into_iter().chain(handlers).chain([orelse, finally]).for_each(|b| binds(b, out));
            }
            _ => {}
        }
    }
}

/// How many statements of a block bind a variable.
pub fn times_bound(block: &Block, local: LocalId) -> usize {
    let mut all = Vec::new();
    binds(block, &mut all);
    all.iter().filter(|l| **l == local).count()
}
